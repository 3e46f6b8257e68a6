//! The numbers that a Prometheus gets, and the dashboard that shows them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::Value;
use testbed::proxy::Proxy;

use crate::support::{FROM_HERE, Watch, World, soon, until};

/// Where the names are documented.
const NAMES: &str = include_str!("../../../../src/metrics.rs");

/// Where those of shards are, of which this service has none.
const SHARDS: &str = include_str!("../../../../crates/groups/src/metrics.rs");

const DASHBOARD: &str = include_str!("../../dashboard.json");

/// Where the alert rules are.
const MONITORING: &str = include_str!("../../../../docs/monitoring.md");

/// Where they send people.
const INCIDENTS: &str = include_str!("../../../../docs/incidents.md");

/// The metric of jobs, of which this service has none.
const JOBS: &str = "zookeeper_job_fires_total";

/// The metric of candidates, of which it has none either.
const PAUSES: &str = "zookeeper_candidate_pauses_total";

/// The constants of a module with names, such as `OWNED`, and the metrics.
fn constants(module: &'static str) -> BTreeMap<&'static str, &'static str> {
    let constant =
        |line: &'static str| line.strip_prefix("pub const ")?.strip_suffix("\";")?.split_once(": &str = \"");
    module.lines().filter_map(constant).collect()
}

/// The metrics of the library that are documented.
fn documented() -> BTreeSet<&'static str> {
    let names: BTreeSet<_> = constants(NAMES).into_values().collect();
    assert!(names.contains(JOBS) && names.len() >= 10, "{names:?}");
    names
}

/// The metrics of shards, with their type and label, as the table has them.
fn of_shards() -> BTreeMap<&'static str, (&'static str, &'static str)> {
    let row = |(constant, name): (&str, &'static str)| {
        let row = SHARDS.lines().find_map(|line| line.strip_prefix(&format!("//! | [`{constant}`] | ")));
        let (kind, rest) =
            row.and_then(|row| row.split_once(" | `")).unwrap_or_else(|| panic!("no row: {constant}"));
        (name, (kind, rest.split('`').next().expect("a label")))
    };
    let metrics: BTreeMap<_, _> = constants(SHARDS).into_iter().map(row).collect();
    assert!(metrics.len() >= 5, "{metrics:?}");
    metrics
}

/// The words in backticks between two texts of the documentation, which breaks lines anywhere.
fn words_between(begin: &str, end: &str) -> BTreeSet<String> {
    let text = NAMES.lines().filter_map(|line| line.strip_prefix("//! ")).collect::<Vec<_>>().join(" ");
    let (_, rest) = text.split_once(begin).unwrap_or_else(|| panic!("not documented: {begin}"));
    let (list, _) = rest.split_once(end).unwrap_or_else(|| panic!("not documented: {end}"));
    list.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

/// An answer of `/metrics`.
#[derive(Default)]
struct Scrape {
    /// Descriptions by metric.
    help: BTreeMap<String, String>,
    /// Types by metric.
    types: BTreeMap<String, String>,
    /// Values by series, such as `name{kind="lock"}`.
    series: BTreeMap<String, f64>,
}

impl Scrape {
    async fn of(watch: &Watch) -> Self {
        let (status, text) = watch.ask("GET", "/metrics", "").await;
        assert_eq!(status, 200, "{text}");
        let mut scrape = Self::default();
        for line in text.lines().filter(|line| !line.is_empty()) {
            let words: Vec<_> = line.splitn(4, ' ').collect();
            match words[..] {
                ["#", "HELP", name, help] => drop(scrape.help.insert(name.to_owned(), help.to_owned())),
                ["#", "TYPE", name, kind] => drop(scrape.types.insert(name.to_owned(), kind.to_owned())),
                _ => {
                    let (series, value) = line.rsplit_once(' ').expect("a series with a value");
                    scrape.series.insert(series.to_owned(), value.parse().expect("a number"));
                }
            }
        }
        scrape
    }

    /// With the series of a job, of a candidate and of shards, as they are documented. The suites of the libraries find them in a recorder.
    fn with_others(mut self) -> Self {
        for (name, (kind, label)) in of_shards() {
            self.series.insert(format!("{name}{{{label}=\"/shards/orders\"}}"), 0.0);
            self.types.insert(name.to_owned(), kind.to_owned());
        }
        for outcome in words_between("`outcome` of a job: ", " for an error") {
            self.series.insert(format!("{JOBS}{{outcome=\"{outcome}\",lock=\"orders\"}}"), 0.0);
        }
        for cause in ["returned", "panicked"] {
            self.series.insert(format!("{PAUSES}{{cause=\"{cause}\",lock=\"orders\"}}"), 0.0);
        }
        for counter in [JOBS, PAUSES] {
            self.types.insert(counter.to_owned(), "counter".to_owned());
        }
        self
    }

    fn value(&self, series: &str) -> f64 {
        self.series.get(series).copied().unwrap_or_default()
    }

    /// The names of its series, such as `name_bucket`, each with its labels.
    fn samples(&self) -> BTreeMap<&str, BTreeSet<&str>> {
        let mut samples = BTreeMap::<_, BTreeSet<_>>::new();
        for series in self.series.keys() {
            let (name, labels) = series.split_once('{').unwrap_or((series, ""));
            let labels = labels.split(',').filter_map(|label| Some(label.split_once('=')?.0));
            samples.entry(name).or_default().extend(labels);
        }
        samples
    }
}

/// What is counted of a lock that was granted, contended, revoked and lost, and of a session that expired.
async fn after_all_events() -> Scrape {
    let world = World::new().await;
    let proxy = Proxy::start(&world.server).await.expect("a proxy");
    let watch = Arc::new(Watch::start(&format!("{}{}", proxy.hosts(), world.chroot)).await);
    let work = |millis: u32| {
        let watch = watch.clone();
        tokio::spawn(async move { watch.ask("POST", &format!("/work/{millis}"), FROM_HERE).await })
    };
    let (status, body) = work(1).await.expect("no panic");
    assert_eq!(status, 200, "{body}");

    // Waits for us, and then works for longer than this test takes.
    let ours = world.lock_of("ours");
    let guard = ours.lock().await.expect("held");
    let contenders = async || ours.contenders().await.expect("listed");
    let revoked = work(u32::MAX);
    until("it waits", async || contenders().await.len() == 2).await;
    guard.release().await.expect("released");
    // Not only first in the queue: it has learned of its grant.
    let holding = "zookeeper_lock_holds{kind=\"lock\",lock=\"orders\"}";
    let holds = async || Scrape::of(&watch).await.value(holding) == 1.0;
    until("it holds", holds).await;
    ours.revoke(&contenders().await[0]).await.expect("revoked");
    let (status, body) = soon("it is done", revoked).await.expect("no panic");
    assert!((status, body.contains("revoked")) == (200, true), "{status} {body}");

    let lost = work(u32::MAX);
    until("it holds", holds).await;
    ours.break_lock(&contenders().await[0]).await.expect("deleted");
    let (status, body) = soon("it is done", lost).await.expect("no panic");
    assert_eq!(status, 409, "{body}");

    let session = proxy.session().expect("its session");
    proxy.refuse();
    testbed::expire::expire(&world.server, session).await.expect("expired");
    proxy.heal();
    let renewals = async || Scrape::of(&watch).await.value("zookeeper_session_renewals_total") >= 1.0;
    until("the session is renewed", renewals).await;
    let scrape = Scrape::of(&watch).await;
    assert!(Arc::into_inner(watch).expect("no work is left").terminate().await);
    world.session.close().await.expect("closed");
    scrape
}

#[tokio::test]
async fn scrape_has_every_documented_metric_with_its_unit() {
    let scrape = after_all_events().await;
    let found: BTreeSet<_> = scrape.types.keys().map(String::as_str).collect();
    let of_service: BTreeSet<_> = documented().into_iter().filter(|name| ![JOBS, PAUSES].contains(name)).collect();
    assert_eq!(found, of_service, "the metrics of the scrape");
    let requests = words_between("`request`: ", "for your own requests");
    let counted = scrape.series.keys().filter_map(|series| {
        series.strip_prefix("zookeeper_session_requests_total{request=\"")?.strip_suffix("\"}").map(str::to_owned)
    });
    let counted: BTreeSet<_> = counted.collect();
    assert!(counted.len() >= 5 && counted.is_subset(&requests), "{counted:?} of {requests:?}");
    for request in requests {
        assert!(MONITORING.contains(&format!("`{request}`")), "docs/monitoring.md does not explain {request}");
    }
    for (name, kind) in &scrape.types {
        let help = scrape.help.get(name).unwrap_or_else(|| panic!("{name} has no description"));
        let in_name = ["_total", "_seconds"].iter().any(|unit| name.ends_with(unit));
        assert!(
            in_name || ["calls", "locks", "sessions"].iter().any(|unit| help.starts_with(unit)),
            "{name}: {help}"
        );
        assert_eq!(kind == "counter", name.ends_with("_total"), "{name} is a {kind}");
        assert_ne!(kind, "summary", "{name}: quantiles of several processes cannot be added up");
    }
    let granted = "kind=\"lock\",outcome=\"granted\",lock=\"orders\"";
    let by_kind = "kind=\"lock\",lock=\"orders\"";
    for (series, expected) in [
        (format!("zookeeper_lock_acquisitions_total{{{granted}}}"), 3.0),
        (format!("zookeeper_lock_wait_seconds_count{{{granted}}}"), 3.0),
        (format!("zookeeper_lock_hold_seconds_count{{{by_kind}}}"), 3.0),
        (format!("zookeeper_lock_holds{{{by_kind}}}"), 0.0),
        (format!("zookeeper_lock_waiting{{{by_kind}}}"), 0.0),
        ("zookeeper_lock_losses_total{kind=\"lock\",cause=\"deleted\",lock=\"orders\"}".to_owned(), 1.0),
    ] {
        assert_eq!(scrape.series.get(&series), Some(&expected), "{series} of {:#?}", scrape.series);
    }
}

/// The queries of a dashboard, wherever they are in it.
fn queries(dashboard: &Value) -> Vec<&str> {
    match dashboard {
        Value::Object(fields) => {
            let query = fields.get("expr").and_then(Value::as_str);
            fields.values().flat_map(queries).chain(query).collect()
        }
        Value::Array(items) => items.iter().flat_map(queries).collect(),
        _ => Vec::new(),
    }
}

/// The words of a query that could be names.
fn words(query: &str) -> impl Iterator<Item = &str> {
    query.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').filter(|word| !word.is_empty())
}

/// Finds each series and label of a query in the scrape, and returns the metrics.
fn used<'a>(query: &'a str, scrape: &Scrape) -> BTreeSet<&'a str> {
    let samples = scrape.samples();
    let used: Vec<_> = words(query).filter(|word| word.starts_with("zookeeper_")).collect();
    assert!(!used.is_empty(), "no metric: {query}");
    let metric = |sample: &'a str| {
        let labels = samples.get(sample).unwrap_or_else(|| panic!("not scraped: {sample} of {query}"));
        // What a legend or a filter uses, as `by (le, kind)` or `{kind=~"$kind"}`.
        for list in query.split("by (").skip(1).filter_map(|rest| rest.split_once(')')) {
            let unknown = words(list.0).find(|label| *label != "instance" && !labels.contains(label));
            assert_eq!(unknown, None, "a label that {sample} has not: {query}");
        }
        // The filters of this one alone.
        let filters = query.split(sample).skip(1).filter_map(|rest| rest.strip_prefix('{'));
        for filter in filters.filter_map(|rest| rest.split_once('}')) {
            let mut names = filter.0.split(',').filter_map(|filter| filter.split(['=', '!']).next());
            let unknown = names.find(|label| *label != "instance" && !labels.contains(label));
            assert_eq!(unknown, None, "a label that {sample} has not: {query}");
        }
        let of = ["_bucket", "_sum", "_count"].iter().find_map(|end| sample.strip_suffix(end));
        of.filter(|of| scrape.types.contains_key(*of)).unwrap_or(sample)
    };
    used.into_iter().map(metric).collect()
}

#[tokio::test]
async fn dashboard_shows_every_documented_metric_and_only_what_is_scraped() {
    let scrape = after_all_events().await.with_others();
    let dashboard: Value = serde_json::from_str(DASHBOARD).expect("JSON");
    let shown: BTreeSet<_> = queries(&dashboard).into_iter().flat_map(|query| used(query, &scrape)).collect();
    let all = documented().into_iter().chain(of_shards().into_keys()).collect();
    assert_eq!(shown, all, "the metrics that the dashboard shows");
}

/// A process whose locks were never lost or refused has the series, too, so `increase` sees the first time.
#[tokio::test]
async fn alert_rules_find_their_series_in_the_first_scrape() {
    let world = World::new().await;
    let watch = Watch::start(&world.hosts()).await;
    let scrape = Scrape::of(&watch).await.with_others();
    let rules = MONITORING.lines().filter_map(|line| line.trim().strip_prefix("expr: "));
    // There is no histogram before the first wait.
    let (later, rules): (Vec<_>, Vec<_>) = rules.partition(|rule| rule.contains("_bucket"));
    assert!(rules.len() >= 5, "{rules:?}");
    rules.iter().for_each(|rule| drop(used(rule, &scrape)));
    let has = |series: &str| scrape.series.get(series).copied();
    let outcomes = |rule: &str| -> Vec<String> {
        let lists = rule.split("outcome=").skip(1).filter_map(|rest| rest.split('"').nth(1));
        lists.flat_map(|words| words.split('|')).map(str::to_owned).collect()
    };
    assert_eq!(has("zookeeper_lock_losses_total{kind=\"lock\",cause=\"expired\",lock=\"orders\"}"), Some(0.0));
    let (of_jobs, of_locks): (Vec<_>, Vec<_>) = rules.iter().partition(|rule| rule.contains(JOBS));
    let of_locks = of_locks.into_iter().map(|rule| ("zookeeper_lock_acquisitions_total{kind=\"lock\",", rule));
    for (series, rule) in of_locks.chain(of_jobs.into_iter().map(|rule| ("zookeeper_job_fires_total{", rule))) {
        for outcome in outcomes(rule) {
            let series = format!("{series}outcome=\"{outcome}\",lock=\"orders\"}}");
            assert_eq!(has(&series), Some(0.0), "{:#?}", scrape.series);
        }
    }
    until("it is connected", async || Scrape::of(&watch).await.value("zookeeper_session_connected") == 1.0).await;
    assert!(watch.terminate().await);

    let scrape = after_all_events().await;
    later.iter().for_each(|rule| drop(used(rule, &scrape)));
    world.session.close().await.expect("closed");
}

/// The page has a row for each, and a rule for those that show trouble.
#[test]
fn metrics_of_shards_are_explained_and_have_alerts() {
    for (name, (kind, _)) in of_shards() {
        assert_eq!(kind == "counter", name.ends_with("_total"), "{name} is a {kind}");
        assert!(MONITORING.contains(&format!("\n| `{name}` |")), "docs/monitoring.md does not explain {name}");
    }
    let rules = MONITORING.lines().filter(|line| line.trim().starts_with("expr: ")).collect::<String>();
    for name in ["unassigned", "plan_node_refused", "cuts_total", "returned_total"] {
        let name = &*format!("zookeeper_shards_{name}");
        assert!(rules.contains(name), "no alert for {name}");
    }
}

/// The anchors of the headings of a document, as GitHub makes them.
fn anchors(document: &str) -> BTreeSet<String> {
    let headings = document.lines().filter_map(|line| line.strip_prefix("## "));
    let anchor = |heading: &str| {
        let letters = heading.to_lowercase().replace(' ', "-");
        letters.chars().filter(|letter| letter.is_alphanumeric() || *letter == '-').collect()
    };
    headings.map(anchor).collect()
}

#[test]
fn alert_rules_have_a_severity_and_a_section_of_the_incidents() {
    let anchors = anchors(INCIDENTS);
    let rules: Vec<_> = MONITORING.split("      - alert: ").skip(1).collect();
    assert!(rules.len() >= 10, "{rules:?}");
    for rule in rules {
        let rule = rule.split("```").next().expect("a rule");
        let name = rule.lines().next().expect("a name");
        let has = |line: &str| rule.contains(&format!("\n        labels: {{ severity: {line} }}\n"));
        assert!(has("critical") != has("warning"), "a severity: {rule}");
        let url = rule.lines().find_map(|line| line.trim().strip_prefix("runbook_url: "));
        let (page, anchor) = url.and_then(|url| url.split_once('#')).unwrap_or_else(|| panic!("no page: {rule}"));
        assert!(page == "https://runbooks.example/incidents.md" && anchors.contains(anchor), "{rule}");
        assert!(INCIDENTS.contains(&format!("`{name}`")), "docs/incidents.md does not have {name}");
    }
}
