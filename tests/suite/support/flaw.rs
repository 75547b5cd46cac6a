//! Flaws that tests plant, because a test that never fails proves nothing: each breaks a known promise.
//!
//! The conformance suite, the simulations and the museum of other clients' bugs each list the flaws that they must find.

/// A flaw of a store, or of a layer between the store and its users.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Flaw {
    None,

    // Attempts.
    /// Answers granted to an attempt that it refused.
    GrantsTwice,
    /// An attempt that is made again is refused by its own hold.
    RefusesACopy,
    /// An attempt that is made again does not begin its lease anew.
    KeepsTheFirstLease,
    /// Keeps the first of several keys although the second is taken.
    KeepsAPart,
    /// Tokens do not rise.
    RepeatsTokens,
    /// Grants withdrawn attempts.
    ForgetsWithdrawals,
    /// A withdrawn attempt keeps its hold, and its place.
    WithdrawsNothing,
    /// The withdrawal of an unanswered attempt ends every hold.
    WithdrawsOthers,

    // Leases.
    /// Holds live half as long as promised.
    ShortLease,
    /// Holds live a hundred times as long as promised.
    HoldsForEver,
    /// A renewal sets the lease, whatever was promised before.
    Shortens,
    /// A renewal creates a hold.
    Resurrects,
    /// The renewal of one reader renews all.
    OneTimeToLive,

    // Answers about holds.
    /// Confirms holds that it does not carry.
    Confirms,
    /// Every renewal is answered held.
    RenewsTheLost,
    /// The answers about several holds are in another order.
    Confuses,
    /// A release ends every hold.
    ReleasesOthers,

    // Waiters.
    /// Sends no wake-ups.
    WakesNone,
    /// Sends no wake-ups, and refuses free locks for a while.
    Sleepy,
    /// Wakes every waiter instead of the first in line.
    WakesAll,
    /// A subscription is active some time after its answer.
    ListensLate,
    /// Keeps listeners that have left.
    KeepsListeners,
    /// A waiter does not ask again after its subscription.
    SleepsAfterSubscribing,
    /// Grants to any request, and ignores the queue and the line.
    Barges,
    /// A dead waiter keeps its place.
    HonoursTheDead,

    // Records.
    /// Answers that it has recorded, and does not record.
    ForgetsRecords,
    /// Records also for lost holds.
    RecordsAlways,
    /// Records when the hold has been released.
    RecordsAfterRelease,
    /// Does not find existing records.
    LosesRecords,
    /// Changes records.
    GarblesRecords,

    // Permits.
    /// Has one more permit than is asked for.
    OneMorePermit,
    /// A permit that has expired is given back by its expiry, and again by its release.
    PermitReturnsTwice,
    /// The limit of an attempt is set for the key while every permit is held, which forgets the holders.
    LimitForgetsHolders,

    // A process's connection.
    /// Drops most questions.
    Silent,
    /// A missing answer counts as granted.
    TakesSilenceForYes,
    /// Every release counts as held.
    Vouches,

    // A quorum.
    /// A minority of the stores counts as a majority.
    CountsTooFew,

    // A layer.
    /// The content of a request is ignored.
    IgnoresBodies,
}
