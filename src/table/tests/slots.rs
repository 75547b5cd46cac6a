//! Where a request gets its answer.

use std::task::{Context, Poll, Waker};

use super::*;
use crate::error::{LockError, StoreError, StoreErrorKind};

fn poll(slot: &Slot) -> Poll<Taken> {
    slot.poll(&mut Context::from_waker(Waker::noop()))
}

fn failed() -> Result<NewShare, LockError> {
    let silent = StoreError::new(StoreErrorKind::Unreachable, "a server is down");
    Err(silent.into())
}

/// Of several keys, one may fail before the request waits for the next: that one may still be granted.
#[test]
fn an_error_is_the_answer_only_if_no_other_ticket_waits() {
    let slot = Slot::new();
    slot.add();
    assert!(slot.give(1, failed()).is_ok());
    slot.add();
    assert!(poll(&slot).is_pending(), "it waits for the other");
    slot.add();
    assert!(slot.give(2, failed()).is_ok());
    assert!(poll(&slot).is_pending(), "one is left");
    assert!(slot.give(3, failed()).is_ok());
    assert!(matches!(poll(&slot), Poll::Ready(Taken::Answer(Err(_)))));
}

/// A request for any of several keys takes a grant while it still asks for the next key: the error is for the end.
#[test]
fn a_request_that_looks_for_a_grant_takes_no_error() {
    let slot = Slot::new();
    slot.add();
    assert!(slot.give(1, failed()).is_ok());
    let looks = || slot.poll_grant(&mut Context::from_waker(Waker::noop()));
    assert!(looks().is_pending());
    assert!(looks().is_pending());
    assert!(matches!(poll(&slot), Poll::Ready(Taken::Answer(Err(_)))));
}
