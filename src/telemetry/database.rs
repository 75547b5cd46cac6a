use tracing::Span;

/// The database of a store, as spans name it. `None`: the store has none, or several servers.
#[derive(Debug, Clone, Default)]
pub(crate) struct Database {
    pub(crate) system: Option<&'static str>,
    /// The command that runs its procedures.
    pub(crate) operation: Option<&'static str>,
    pub(crate) address: Option<String>,
    pub(crate) port: Option<u16>,
}

impl Database {
    /// The procedure that grants a lock of `mode`: it is named after the mode.
    pub(super) fn procedure(&self, mode: &'static str) -> Option<&'static str> {
        self.operation.map(|_| mode)
    }

    /// The kind of a span that asks the store.
    pub(super) fn kind(&self) -> &'static str {
        match self.system {
            Some(_) => "client",
            None => "internal",
        }
    }
}

/// Marks a span as failed.
pub(super) fn failed(span: &Span, error: &'static str) {
    span.record("error.type", error);
    span.record("otel.status_code", "ERROR");
}
