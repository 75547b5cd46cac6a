//! Flaws that a simulation must find: each breaks a known promise.

/// A flaw of a store, or of a layer between the store and its users.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Flaw {
    None,

    // Flaws of the store.
    /// Answers granted to an attempt that it refused.
    GrantsTwice,
    /// A release ends every hold.
    ReleasesOthers,
    /// A renewal creates a hold.
    Resurrects,
    /// Holds live half as long as promised.
    ShortLease,
    /// Grants withdrawn attempts.
    ForgetsWithdrawals,
    /// Keeps the first of several keys although the second is taken.
    KeepsAPart,
    /// Tokens do not rise.
    RepeatsTokens,
    /// Confirms holds that it does not carry.
    Confirms,
    /// Sends no wake-ups, and refuses free locks for a while.
    Sleepy,
    /// Keeps listeners that have left.
    KeepsListeners,
    /// Grants to any request, and ignores the queue and the line.
    Barges,
    /// A dead waiter keeps its place.
    HonoursTheDead,
    /// Answers that it has recorded, and does not record.
    ForgetsRecords,
    /// Records also for lost holds.
    RecordsAlways,
    /// Does not find existing records.
    LosesRecords,
    /// Changes records.
    GarblesRecords,
    /// Has one more permit than is asked for.
    OneMorePermit,
    /// A permit that has expired counts as held.
    KeepsExpiredPermits,

    // Flaws of a process's connection.
    /// Drops most questions.
    Silent,
    /// A missing answer counts as granted.
    TakesSilenceForYes,
    /// Every release counts as held.
    Vouches,

    // Flaws of a quorum.
    /// A minority of the stores counts as a majority.
    CountsTooFew,

    // Flaws of a layer.
    /// The content of a request is ignored.
    IgnoresBodies,
}
