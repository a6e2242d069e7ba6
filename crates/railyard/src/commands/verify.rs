//! `railyard verify`: one signature, offline. Exit status 0 if it holds, 1 if not, with the check that failed.

use std::process::ExitCode;
use std::time::Duration;

use jiff::Timestamp;
use railyard_core::signing::{Mismatch, flowcatalyst, standard};

use crate::cli::Verify;
use crate::exit::Usage;
use crate::now::now;
use crate::{files, output};

/// Checks it.
///
/// # Errors
/// A file that cannot be read, a time that cannot be read.
pub(crate) fn run(args: &Verify) -> anyhow::Result<ExitCode> {
    let secret = files::secret_of(args.secret.as_ref(), args.secret_file.as_deref())?;
    let secret = secret.ok_or_else(|| Usage("--secret or --secret-file is needed".to_owned()))?;
    let body = files::bytes(&args.body_file)?;
    let at = match &args.at {
        Some(text) => text.parse().map_err(|error| Usage(format!("--at {text}: {error}")))?,
        None => now(),
    };
    let result = check(args, &secret, &body, at);
    let scheme = if args.id.is_some() { "Standard Webhooks" } else { "X-FLOWCATALYST" };
    if args.json {
        let failed = result.as_ref().err().map(ToString::to_string);
        output::json(&serde_json::json!({ "scheme": scheme, "valid": result.is_ok(), "failed": failed }))?;
    } else {
        match &result {
            Ok(()) => println!("valid ({scheme})"),
            Err(mismatch) => println!("not valid ({scheme}): {mismatch}"),
        }
    }
    Ok(if result.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn check(args: &Verify, secret: &str, body: &[u8], at: Timestamp) -> Result<(), Mismatch> {
    let tolerance = Duration::from_secs(args.tolerance_s.into());
    match &args.id {
        Some(id) => standard::verify(secret, id, &args.timestamp, &args.signature, body, at, tolerance),
        None => flowcatalyst::verify(secret.as_bytes(), &args.timestamp, &args.signature, body, at, tolerance),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::cli::{Cli, Command};

    const ORDER: &[u8] = br#"{"orderId":"12345","amount":99.99}"#;

    fn verify(arguments: &[&str], secret: &str, body: &[u8], at: &str) -> Result<(), Mismatch> {
        let fixed = ["railyard", "verify", "--secret", secret, "--body-file", "-"];
        let cli = Cli::try_parse_from(fixed.iter().chain(arguments)).unwrap();
        let Command::Verify(args) = cli.command else { panic!("another verb") };
        check(&args, secret, body, at.parse().unwrap())
    }

    /// The vector of the tests in core/signing, by openssl.
    #[test]
    fn s3_14_the_contracts_vector() {
        let signed = [
            "--timestamp",
            "2025-10-04T14:30:45.123Z",
            "--signature",
            "2501382cba528add2eb4c6e93131fd7967093bb6d8f80af96fe6df4357407988",
        ];
        assert_eq!(verify(&signed, "whsec_xyz789", ORDER, "2025-10-04T14:35:45Z"), Ok(()));
        assert_eq!(verify(&signed, "whsec_xyz788", ORDER, "2025-10-04T14:35:45Z"), Err(Mismatch::Wrong));
        assert_eq!(verify(&signed, "whsec_xyz789", b"{}", "2025-10-04T14:35:45Z"), Err(Mismatch::Wrong));
        assert_eq!(verify(&signed, "whsec_xyz789", ORDER, "2025-10-04T14:35:46Z"), Err(Mismatch::TooOld(300)));
        let patient = [&signed[..], &["--tolerance-s", "301"]].concat();
        assert_eq!(verify(&patient, "whsec_xyz789", ORDER, "2025-10-04T14:35:46Z"), Ok(()));
    }

    #[test]
    fn an_id_means_standard_webhooks() {
        let signed = [
            "--id",
            "msg_p5jXN8AQM9LWM0D4loKWxJek",
            "--timestamp",
            "1614265330",
            "--signature",
            "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
        ];
        let secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
        let at = "2021-02-25T15:02:10Z";
        assert_eq!(verify(&signed, secret, br#"{"test": 2432232314}"#, at), Ok(()));
        assert_eq!(verify(&signed, "whsec_xyz789", b"", at), Err(Mismatch::SecretForm));
    }
}
