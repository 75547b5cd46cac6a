//! What a simulation must find: each is known to break a promise.

/// What is wrong with a store, or with what stands between it and those who use it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Flaw {
    None,

    // The store.
    /// Says that it granted what it refused.
    GrantsTwice,
    /// Ends whatever is held when anybody releases.
    ReleasesOthers,
    /// Renewing creates.
    Resurrects,
    /// Holds live half as long as they were promised to.
    ShortLease,
    /// Grants what was withdrawn.
    ForgetsWithdrawals,
    /// Keeps the first of several though the second is taken.
    KeepsAPart,
    /// Tokens do not rise.
    RepeatsTokens,
    /// Confirms what it does not carry.
    Confirms,
    /// Wakes nobody, and refuses for a while what is free.
    Sleepy,
    /// Keeps who has listened.
    KeepsListeners,
    /// Lets whoever asks in, whoever was first.
    Barges,
    /// A waiter that has died keeps its place.
    HonoursTheDead,
    /// Says that it records, and does not.
    ForgetsRecords,
    /// Records for whoever has lost its hold.
    RecordsAlways,
    /// Finds nothing where there is a record.
    LosesRecords,
    /// Changes what is recorded.
    GarblesRecords,

    // A process's end of its connection.
    /// It asks seldom.
    Silent,
    /// What is not answered counts as granted.
    TakesSilenceForYes,
    /// What is released counts as held.
    Vouches,

    // A quorum.
    /// A few of the stores count as all of them.
    CountsTooFew,

    // A layer.
    /// What a request says does not matter.
    IgnoresBodies,
    /// An answer goes out before it is sure to be recorded.
    Hasty,
}
