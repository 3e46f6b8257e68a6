//! Owns what the process gives to its monitoring: a log, traces, and numbers.

use std::io;
use std::time::Duration;

use metrics_exporter_prometheus::{BuildError, Matcher, PrometheusBuilder};
use opentelemetry::trace::TracerProvider;
use opentelemetry_sdk::trace::{SdkTracerProvider, SpanExporter};
use tokio::time::interval;
use tracing::Subscriber;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::fmt;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::registry::Registry;
use zookeeper_recipes::metrics;

/// Seconds.
const TIMES: [f64; 14] = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 60.0, 600.0];

/// How often samples are put into the buckets if nobody scrapes.
const UPKEEP: Duration = Duration::from_secs(5);

/// A recorder of what locks and sessions count. Buckets, because the default, quantiles, cannot be added up over processes.
pub(crate) fn recorder() -> Result<PrometheusBuilder, BuildError> {
    let full = |name: &str| Matcher::Full(name.to_owned());
    PrometheusBuilder::new()
        .set_buckets_for_metric(full(metrics::WAIT), &TIMES)?
        .set_buckets_for_metric(full(metrics::HOLD), &TIMES)
}

/// The label of a lock: the first segment of its path. `/orders/7` is one of the `orders`.
pub(crate) fn label_locks() {
    metrics::label_locks_by(|path| path.split('/').nth(1).unwrap_or_default().to_owned().into());
}

/// Keeps the memory of the recorder bounded, for as long as it is polled.
pub(crate) async fn upkeep(recorder: &metrics_exporter_prometheus::PrometheusHandle) {
    let mut ticks = interval(UPKEEP);
    loop {
        ticks.tick().await;
        recorder.run_upkeep();
    }
}

/// Gives each span to `exporter` when it ends. In a service, use `with_batch_exporter` and the exporter of `opentelemetry-otlp`.
pub(crate) fn tracer(exporter: impl SpanExporter + 'static) -> SdkTracerProvider {
    SdkTracerProvider::builder().with_simple_exporter(exporter).build()
}

/// The log goes to the standard error, the spans to the tracer.
pub(crate) fn subscriber(tracer: Option<&SdkTracerProvider>) -> impl Subscriber + Send + Sync + use<> {
    let spans = tracer.map(|provider| tracing_opentelemetry::layer().with_tracer(provider.tracer("watch")));
    let log = fmt::layer().with_writer(io::stderr);
    Registry::default().with(LevelFilter::INFO).with(log).with(spans)
}
