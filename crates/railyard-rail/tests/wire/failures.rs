//! Each way to fail has its own code, and says whether the receiver may have read the request.

use railyard_core::{CallOutcome, ErrorCode};
use railyard_rail::{Client, HttpOptions};
use tokio::net::TcpListener;

use crate::client::{always, deliver, deliver_with, message, retryable};
use crate::receiver::{Act, Receiver};

async fn code_of(act: Act) -> ErrorCode {
    let receiver = Receiver::start(act).await;
    let outcome = deliver(&message(&receiver.url())).await.outcome;
    assert!(outcome.answer().is_none());
    retryable(&outcome).0
}

#[tokio::test]
async fn a_closed_port() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    drop(listener);
    let outcome = deliver(&message(&format!("http://127.0.0.1:{port}/"))).await.outcome;
    let (code, _) = retryable(&outcome);
    assert_eq!((code, code.answer_lost()), (ErrorCode::ConnectRefused, false));
}

#[tokio::test]
async fn a_name_without_an_address() {
    let outcome = deliver(&message("http://no-such-name.invalid/")).await.outcome;
    let (code, detail) = retryable(&outcome);
    assert_eq!((code, code.answer_lost()), (ErrorCode::DnsFailed, false));
    assert!(detail.contains("no-such-name.invalid"), "{detail}");
}

#[tokio::test]
async fn a_reset_and_a_close_leave_the_answer_unknown() {
    let reset = code_of(Act::Reset).await;
    assert_eq!((reset, reset.answer_lost()), (ErrorCode::ConnectionReset, true));
    let closed = code_of(Act::raw(b"")).await;
    assert_eq!((closed, closed.answer_lost()), (ErrorCode::ConnectionClosed, true));
    assert_eq!(code_of(Act::raw(b"HTTP/1.1 200 O")).await, ErrorCode::ConnectionClosed);
}

#[tokio::test]
async fn what_is_not_http() {
    for garbage in [
        b"SSH-2.0-OpenSSH_9.6\r\n".as_slice(),
        b"\0\0\0\0\0\0\0\0\r\n\r\n",
        b"HTTP/1.1 abc OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: many\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nno colon\r\n\r\n",
    ] {
        let code = code_of(Act::raw(garbage)).await;
        assert_eq!((code, code.answer_lost()), (ErrorCode::ProtocolError, true), "{garbage:?}");
    }
    let endless_head = [b"HTTP/1.1 200 OK\r\nX: ".as_slice(), &vec![b'x'; 1_000_000]].concat();
    assert_eq!(code_of(Act::raw(&endless_head)).await, ErrorCode::ProtocolError);
}

#[tokio::test]
async fn s3_47_addresses_that_may_not_be_called() {
    let receiver = Receiver::start(Act::answer(200, "")).await;
    let port = receiver.port();
    let client = Client::new(&HttpOptions::default()).unwrap();
    for host in [
        "127.0.0.1",
        "localhost",
        "127.1",
        "0x7f.1",
        "2130706433",
        "0",
        "[::1]",
        "[::ffff:127.0.0.1]",
        "[64:ff9b::7f00:1]",
        "169.254.169.254",
        "10.0.0.1",
    ] {
        let message = message(&format!("http://{host}:{port}/"));
        let outcome = deliver_with(&client, &message, always()).await.outcome;
        let (code, detail) = retryable(&outcome);
        assert_eq!((code, code.answer_lost()), (ErrorCode::AddressRefused, false), "{host}");
        assert!(detail.contains("allow_networks"), "{detail}");
    }
    assert!(receiver.seen().is_empty());
}

#[tokio::test]
async fn a_proxy_gets_the_call_and_literal_addresses_are_judged_all_the_same() {
    let proxy = Receiver::start(Act::answer(200, "")).await;
    let url = format!("http://user:secret@localhost:{}", proxy.port());
    let client = Client::new(&HttpOptions { proxy: Some(url.try_into().unwrap()), ..HttpOptions::default() }).unwrap();
    let message_to = async |target: &str| {
        let message = message(target);
        deliver_with(&client, &message, always()).await.outcome
    };
    assert!(matches!(message_to("http://no-such-name.invalid/x").await, CallOutcome::Delivered(_)));
    assert!(proxy.request().0.starts_with("POST http://no-such-name.invalid/x HTTP/1.1"));
    assert_eq!(retryable(&message_to("http://127.0.0.1/").await).0, ErrorCode::AddressRefused);
    assert_eq!(proxy.seen().len(), 1);
}

#[tokio::test]
async fn targets_that_are_none() {
    for target in ["", "ftp://x/", "http://user:secret@127.0.0.1/", "http://127.0.0.1:0/", "http://x/\n"] {
        let outcome = deliver(&message(target)).await.outcome;
        let CallOutcome::Failed { code, retryable: false, detail, .. } = outcome else { panic!("{outcome:?}") };
        assert_eq!(code, ErrorCode::InvalidRequest, "{target}");
        assert!(!detail.contains("secret"));
    }
}

#[tokio::test]
async fn s3_44_details_have_no_query() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    drop(listener);
    for target in [format!("http://127.0.0.1:{port}/?token=sesame"), "http://no-such.invalid/?token=sesame".to_owned()]
    {
        let called = deliver(&message(&target)).await;
        assert!(!format!("{called:?}").contains("sesame"), "{called:?}");
    }
}
