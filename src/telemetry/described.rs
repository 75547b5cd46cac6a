//! Tables of metrics.

/// Declares the name of each metric, and a function that describes them to the recorder. A duration is in seconds, as its name
/// says.
macro_rules! described {
    ($($describe:ident $name:ident = $metric:literal: $text:literal;)+) => {
        $(const $name: &str = $metric;)+

        /// Describes the metrics of this file.
        pub(in crate::telemetry) fn describe_each() {
            let unit = |name: &str| name.ends_with("_seconds").then_some(metrics::Unit::Seconds);
            metrics::with_recorder(|recorder| {
                $(recorder.$describe($name.into(), unit($name), $text.into());)+
            });
        }
    };
}

pub(in crate::telemetry) use described;
