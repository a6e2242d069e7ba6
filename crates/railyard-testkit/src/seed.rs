//! One number from which a randomised test makes all its choices.

/// The seed of this run: `RAILYARD_SEED` if set, else a random one. It is printed, so that a failed run can be made
/// again with the same choices; test runners show it with the failure.
///
/// # Panics
/// When `RAILYARD_SEED` is set and is not a number.
#[expect(clippy::disallowed_methods, reason = "a switch for tests, not configuration of Railyard")]
pub fn seed() -> u64 {
    let seed = match std::env::var("RAILYARD_SEED") {
        Ok(text) => text.trim().parse().unwrap_or_else(|_| panic!("RAILYARD_SEED is not a number: {text:?}")),
        Err(_) => rand::random(),
    };
    println!("RAILYARD_SEED={seed}");
    seed
}
