//! The proxy's record and counts.

use std::time::{Duration, Instant};

use testbed::proxy::{Cut, Kind, Op, Proxy, Request, Verdict};
use zookeeper_client::Error;

use crate::{Bench, ephemeral, limited, ops, persistent, server};

#[tokio::test]
async fn requests_are_recorded() {
    limited(async {
        let Bench { proxy, client, path, .. } = Bench::new().await;
        client.create(&path, b"data", &persistent()).await.expect("created");
        let (_, _, watcher) = client.get_and_watch_data(&path).await.expect("read");
        client.list_children(&path).await.expect("listed");
        client.set_data(&path, b"more", None).await.expect("written");
        watcher.changed().await;
        assert_eq!(client.delete(&path, Some(77)).await, Err(Error::BadVersion));
        let mut multi = client.new_multi_writer();
        let child = format!("{path}/child");
        multi.add_create(&child, b"", &persistent()).expect("a valid create");
        multi.add_delete(&child, None).expect("a valid delete");
        multi.add_delete(&path, None).expect("a valid delete");
        multi.commit().await.expect("committed");

        let requests = proxy.requests();
        let create = requests[0].op;
        assert!(matches!(create, Op::Create | Op::Create2), "{create:?}");
        let rest = [Op::GetData, Op::GetChildren, Op::SetData, Op::Delete, Op::Multi];
        assert_eq!(ops(&requests)[1..], rest);
        assert!(requests.iter().all(|request| request.path.starts_with(&path)), "{requests:?}");
        let watching = requests.iter().filter(|request| request.watch);
        assert_eq!(watching.map(|r| r.number).collect::<Vec<_>>(), [2]);
        let writes = requests.iter().filter(|request| request.is_write());
        assert_eq!(writes.map(|r| r.number).collect::<Vec<_>>(), [1, 4, 5, 6]);
        assert_eq!(requests[4].answer.map(|answer| answer.err), Some(-103));
        let parts = requests[5].parts.iter();
        let parts: Vec<_> = parts.map(|(op, path)| (*op, path.as_str())).collect();
        assert!(matches!(parts[0].0, Op::Create | Op::Create2), "{parts:?}");
        assert_eq!(parts[0].1, child);
        assert_eq!(parts[1..], [(Op::Delete, child.as_str()), (Op::Delete, path.as_str())]);
        let notified = proxy.uncounted().into_iter().any(|frame| match frame.kind {
            Kind::Notification { event, path: at, .. } => event == 3 && at == path,
            _ => false,
        });
        assert!(notified, "{:?}", proxy.uncounted());
        proxy.reset();
        assert!(proxy.requests().is_empty() && proxy.uncounted().is_empty());
        assert_eq!(proxy.round_trips(), 0);
    })
    .await;
}

#[tokio::test]
async fn requests_back_to_back_are_one_round_trip() {
    limited(async {
        let Bench { proxy, client, path, .. } = Bench::new().await;
        // Longer than Nagle's algorithm, which the client leaves on, can delay the second segment.
        let hold = Duration::from_millis(500);
        proxy.hold_answers(hold);
        let began = Instant::now();
        let options = ephemeral();
        let (create, list) = (client.create(&path, b"", &options), client.list_children("/"));
        let (created, listed) = tokio::join!(create, list);
        created.expect("created");
        assert!(listed.expect("listed").iter().any(|name| path.ends_with(name.as_str())));
        assert_eq!((proxy.requests().len(), proxy.round_trips()), (2, 1));
        assert!(began.elapsed() >= hold);

        client.delete(&path, None).await.expect("deleted");
        assert_eq!(proxy.round_trips(), 2);
        proxy.hold_answers(Duration::ZERO);
        client.list_children("/").await.expect("listed");
        assert_eq!(proxy.requests().iter().map(|r| r.round).collect::<Vec<_>>(), [1, 1, 2, 3]);
    })
    .await;
}

#[tokio::test]
async fn held_answers_keep_their_order() {
    limited(async {
        let Bench { proxy, client, .. } = Bench::new().await;
        proxy.hold_answers(Duration::from_millis(50));
        let first = client.list_children("/");
        proxy.wait_for(|request| request.answer.is_some()).await;
        proxy.hold_answers(Duration::ZERO);
        let second = client.list_children("/");
        let (first, second) = tokio::join!(first, second);
        first.expect("listed");
        second.expect("listed");
        let forwarded: Vec<_> =
            proxy.requests().iter().map(|r| r.answer.and_then(|answer| answer.forwarded)).collect();
        assert!(forwarded[0].is_some() && forwarded[0] <= forwarded[1], "{forwarded:?}");
    })
    .await;
}

#[tokio::test]
async fn request_that_is_left_out_is_answered_and_not_counted() {
    limited(async {
        let Bench { proxy, client, path, .. } = Bench::new().await;
        proxy.leave_out(|request| request.op == Op::Exists);
        proxy.cut(Cut::BeforeAnswer(3));
        for _ in 0..3 {
            assert!(client.check_stat("/").await.expect("an answer").is_some());
        }
        let (first, second) = (client.list_children("/"), client.check_stat("/"));
        first.await.expect("listed");
        second.await.expect("an answer");
        client.create(&path, b"", &ephemeral()).await.expect("created");
        assert_eq!(ops(&proxy.requests())[..1], [Op::GetChildren]);
        assert_eq!(proxy.requests().iter().map(|r| (r.number, r.round)).collect::<Vec<_>>(), [(1, 1), (2, 2)]);
        assert!(!proxy.cut_fired());
        client.list_children("/").await.expect_err("the third that counts is cut");
        assert!(proxy.cut_fired());
    })
    .await;
}

#[tokio::test]
async fn hook_sees_a_request_that_is_left_out() {
    limited(async {
        let Bench { proxy, client, .. } = Bench::new().await;
        proxy.leave_out(|request| request.op == Op::Exists);
        proxy.on_request(|request| match (request.op, request.number) {
            (Op::Exists, 0) => Verdict::Cut,
            _ => Verdict::Forward,
        });
        client.check_stat("/").await.expect_err("cut");
    })
    .await;
}

#[tokio::test]
async fn waiting_for_a_condition_misses_nothing() {
    limited(async {
        let bench = Bench::new().await;
        let listings = |requests: &[Request]| requests.iter().filter(|r| r.op == Op::GetChildren).count();
        bench.proxy.wait_until(|requests| listings(requests) == 0).await;
        let asked = async {
            for _ in 0..3 {
                bench.client.list_children("/").await.expect("listed");
            }
        };
        tokio::join!(bench.proxy.wait_until(|requests| listings(requests) == 3), asked);
        // It is already true.
        bench.proxy.wait_until(|requests| listings(requests) == 3).await;
    })
    .await;
}

#[tokio::test]
async fn waiting_sees_earlier_and_later_requests() {
    limited(async {
        let bench = Bench::new().await;
        bench.proxy.wait_for_requests(0).await;
        let stat = bench.client.check_stat(&bench.path);
        let asked = bench.proxy.wait_for(|request| request.answer.is_some()).await;
        assert_eq!((asked.op, asked.path.as_str()), (Op::Exists, bench.path.as_str()));
        stat.await.expect("an answer");
        assert_eq!(bench.proxy.wait_for(|request| request.op == Op::Exists).await.number, 1);
    })
    .await;
}

#[tokio::test]
async fn large_frames_pass_both_ways() {
    limited(async {
        let bench = Bench::new().await;
        let data = vec![7; (1 << 20) - 1024];
        bench.client.create(&bench.path, &data, &ephemeral()).await.expect("created");
        let (read, _) = bench.client.get_data(&bench.path).await.expect("read");
        assert_eq!(read, data);
    })
    .await;
}

#[tokio::test]
async fn rewritten_answer_reaches_the_client_and_the_record_keeps_the_original() {
    limited(async {
        let bench = Bench::new().await;
        bench.create().await.expect("created");
        bench.proxy.rewrite_answers(|request, answer| {
            if request.op == Op::Exists {
                const NO_NODE: i32 = -101;
                answer.splice(12.., NO_NODE.to_be_bytes());
            }
        });
        assert!(bench.client.check_stat(&bench.path).await.expect("an answer").is_none());
        bench.client.get_data(&bench.path).await.expect("is there");
        let errors: Vec<_> =
            bench.proxy.requests().iter().map(|request| request.answer.map(|it| it.err)).collect();
        assert_eq!(errors, [Some(0); 3]);
    })
    .await;
}

#[tokio::test]
async fn four_letter_words_pass() {
    limited(async {
        use tokio::io::{AsyncReadExt, AsyncWriteExt};
        let proxy = Proxy::start(&server()).await.expect("a proxy");
        let mut stream = tokio::net::TcpStream::connect(proxy.hosts()).await.expect("a connection");
        stream.write_all(b"srvr").await.expect("sent");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.expect("an answer");
        assert!(!answer.is_empty());
        assert!(proxy.uncounted().iter().any(|frame| frame.kind == Kind::Command));
        assert!(proxy.requests().is_empty());
    })
    .await;
}
