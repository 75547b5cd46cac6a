/// Stands for each type of a feature that is switched off, and does nothing. The functions are where the feature's are missing.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Off;
