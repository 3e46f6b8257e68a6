//! zklock at a terminal: a pseudo-terminal, with a shell as the owner of the session.

use std::process::Command;

use expectrl::session::OsSession;
use expectrl::{Eof, Expect, Regex, Session};
use zookeeper_recipes::Contender;

use crate::support::{PATIENCE, World, binary, code, hosts, zklock};

/// Runs a script at a terminal, with the binary as `$0` and these arguments.
fn terminal(script: &str, arguments: &[&str]) -> OsSession {
    terminal_of("sh", script, arguments)
}

/// The same in this shell.
fn terminal_of(shell: &str, script: &str, arguments: &[&str]) -> OsSession {
    let mut shell = Command::new(shell);
    shell.args(["-c", script, binary()]).args(arguments).env("ZK_HOSTS", hosts());
    let mut terminal = Session::spawn(shell).expect("a terminal");
    terminal.get_process_mut().set_window_size(200, 12).expect("resized");
    terminal.set_expect_timeout(Some(PATIENCE));
    terminal
}

/// Waits for a text, and returns what came before.
fn expect(terminal: &mut OsSession, text: &str) -> String {
    let found = terminal.expect(text).unwrap_or_else(|error| panic!("no {text:?}: {error}"));
    String::from_utf8_lossy(found.before()).into_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn command_reads_from_the_terminal() {
    let world = World::new().await;
    let script = "$0 run $1 -- sh -c 'echo ready; read x; echo got-$x'; echo code=$?";
    let mut terminal = terminal(script, &[&world.path]);
    expect(&mut terminal, "ready");
    terminal.send_line("something").expect("sent");
    expect(&mut terminal, "got-something");
    expect(&mut terminal, "code=0");
}

#[tokio::test(flavor = "multi_thread")]
async fn script_reads_from_the_terminal_afterwards() {
    let world = World::new().await;
    let mut terminal = terminal("$0 run $1 -- true; echo ready; read x; echo got-$x", &[&world.path]);
    expect(&mut terminal, "ready");
    terminal.send_line("something").expect("sent");
    expect(&mut terminal, "got-something");
}

#[tokio::test(flavor = "multi_thread")]
async fn ctrl_c_ends_the_command_and_zklock_releases() {
    let world = World::new().await;
    // The command and zklock are in the foreground one after the other; the shell outlives both.
    // A shell may miss Ctrl-C while it starts another command (dash 0.5.12 does), so this one reads.
    let script = "trap : INT; $0 run $1 -- sh -c 'echo ready; read x'; echo code=$?";
    let mut terminal = terminal(script, &[&world.path]);
    expect(&mut terminal, "ready");
    terminal.send("\x03").expect("sent");
    expect(&mut terminal, "code=130");
    assert!(world.mutex().contenders().await.expect("listed").is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn ctrl_c_ends_a_wait() {
    let world = World::new().await;
    let _guard = world.mutex().lock().await.expect("held");
    let mut terminal = terminal("trap : INT; $0 run $1 -- true; echo code=$?", &[&world.path]);
    expect(&mut terminal, "in the queue");
    terminal.send("\x03").expect("sent");
    expect(&mut terminal, "code=130");
    assert_eq!(world.mutex().contenders().await.expect("listed").len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn ctrl_z_does_not_stop_a_waiter() {
    let world = World::new().await;
    let guard = world.mutex().lock().await.expect("held");
    let mut terminal = terminal("$0 run $1 -- echo done; echo code=$?", &[&world.path]);
    expect(&mut terminal, "in the queue");
    terminal.send("\x1a").expect("sent");
    // It is a row of its own.
    expect(
        &mut terminal,
        "\r\x1b[Kzklock: Ctrl-Z does not stop zklock: it would hold up the queue, or lose its lock\r\n",
    );
    guard.release().await.expect("released");
    expect(&mut terminal, "code=0");
}

#[tokio::test(flavor = "multi_thread")]
async fn ctrl_z_does_not_stop_the_command() {
    let guarded = if cfg!(target_os = "linux") { &["", "--die-with-parent"][..] } else { &[""] };
    for option in guarded {
        let world = World::new().await;
        let script = format!("$0 run {option} $1 -- sh -c 'echo ready; read x; echo got-$x'; echo code=$?");
        let mut terminal = terminal(&script, &[&world.path]);
        expect(&mut terminal, "ready");
        terminal.send("\x1a").expect("sent");
        terminal.send_line("something").expect("sent");
        expect(&mut terminal, "got-something");
        expect(&mut terminal, "code=0");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn group_of_the_command_is_ended_by_a_loss() {
    let world = World::new().await;
    let script = "$0 run $1 -- sh -c 'sh -c \"trap \\\"echo inner; exit\\\" TERM; echo ready; while :; do sleep 0.02; done\"; :'; echo code=$?";
    let mut terminal = terminal(script, &[&world.path]);
    expect(&mut terminal, "ready");
    let all = world.contenders("a holder", |all| all.iter().any(Contender::is_holder)).await;
    assert!(world.mutex().break_lock(&all[0]).await.expect("broken"));
    expect(&mut terminal, "inner");
    expect(&mut terminal, "code=75");
}

#[tokio::test(flavor = "multi_thread")]
async fn waiter_sees_its_position_and_the_holder() {
    let world = World::new().await;
    let _holder = world.holder(&["--identifier", "billing-7"]).await;
    let mut terminal = terminal("$0 run $1 -- echo done", &[&world.path]);
    expect(&mut terminal, &format!("{} is held by billing-7; position 1 in the queue; ", world.path));
    // It is shown again, with the time.
    terminal.expect(Regex("is held by billing-7; position 1 in the queue; [1-9][0-9]* s")).expect("a later time");
    drop(_holder);
    // The row is erased before the command writes.
    let before = expect(&mut terminal, "done");
    assert!(before.ends_with("\r\x1b[K"), "{before:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn status_of_a_waiter_has_one_row() {
    let world = World::new().await;
    let _holder = world.holder(&[]).await;
    let mut terminal = terminal("read x; $0 run $1 -- echo done", &[&world.path]);
    terminal.get_process_mut().set_window_size(40, 24).expect("resized");
    terminal.send_line("").expect("sent");
    expect(&mut terminal, &format!("\x1b[K{}\r", &format!("zklock: {} is held by", world.path)[..39]));
}

#[tokio::test(flavor = "multi_thread")]
async fn watch_draws_the_table_again_when_it_changes() {
    let world = World::new().await;
    let mut terminal = terminal("$0 watch $1", &[&world.path]);
    expect(&mut terminal, "0 hold, 0 wait");
    let guard = world.mutex().lock().await.expect("held");
    expect(&mut terminal, "1 hold, 0 wait");
    let mut waiters: Vec<_> = (0..9).map(|_| world.start(&[], &["true"])).collect();
    expect(&mut terminal, "1 hold, 9 wait");
    let rest = terminal.expect(Regex("… and [0-9]+ more")).expect("not all rows fit");
    let rows = String::from_utf8_lossy(rest.before()).matches("\r\n").count();
    assert_eq!(rows, 1 + 1 + 8, "the head, the columns, and eight of ten");
    assert_eq!(&rest[0], "… and 2 more".as_bytes());
    guard.release().await.expect("released");
    for waiter in &mut waiters {
        assert_eq!(waiter.end().await.code(), Some(0));
    }
    expect(&mut terminal, "0 hold, 0 wait");
    terminal.send("\x03").expect("sent");
    terminal.expect(Eof).expect("it ends");
}

#[tokio::test(flavor = "multi_thread")]
async fn watch_follows_the_size_and_ends_by_a_key() {
    let world = World::new().await;
    let mutex = world.mutex();
    let _guard = mutex.lock().await.expect("held");
    let mut waiting = Vec::new();
    for _ in 0..10 {
        waiting.push(mutex.enqueue().await.expect("queued"));
    }
    let last = mutex.contenders().await.expect("listed")[10].name().to_owned();
    let mut terminal = terminal("stty echo; $0 watch $1; echo code=$?; stty -a", &[&world.path]);
    expect(&mut terminal, "… and 3 more");
    terminal.get_process_mut().set_window_size(200, 40).expect("resized");
    expect(&mut terminal, &last);
    terminal.send("q").expect("sent");
    expect(&mut terminal, "code=0");
    let settings = expect(&mut terminal, "echoctl");
    assert!(settings.contains(" icanon ") && settings.contains(" echo "), "{settings}");
}

#[tokio::test(flavor = "multi_thread")]
async fn watch_that_is_stopped_leaves_the_terminal_as_it_was() {
    let world = World::new().await;
    let script = "stty echo; set -m; $0 watch $1; stty -a; fg; echo code=$?";
    let mut terminal = terminal_of("bash", script, &[&world.path]);
    expect(&mut terminal, "0 hold, 0 wait");
    terminal.send("\x1a").expect("sent");
    let settings = expect(&mut terminal, "echoctl");
    assert!(settings.contains(" icanon ") && settings.contains(" echo "), "{settings}");
    expect(&mut terminal, "0 hold, 0 wait");
    terminal.send("q").expect("sent");
    expect(&mut terminal, "code=0");
}

#[tokio::test(flavor = "multi_thread")]
async fn table_fits_the_screen() {
    let world = World::new().await;
    let guard = world.holder(&["--identifier", "billing-7"]).await;
    for (columns, head) in [
        (200, "POS  STATE  FOR  KIND  TOKEN  SESSION  SINCE  HEARD  ADDRESS  IDENTIFIER  NODE"),
        (110, "POS  STATE  FOR  KIND  TOKEN  SINCE  HEARD  ADDRESS  IDENTIFIER"),
        (80, "POS  STATE  FOR  KIND  TOKEN  HEARD  ADDRESS  IDENTIFIER"),
        (60, "POS  STATE  FOR  KIND  TOKEN  HEARD  IDENTIFIER"),
        // With a token of seven digits, after other tests.
        (43, "POS  STATE  FOR  KIND  TOKEN  IDENTIFIER"),
        (20, "POS  STATE  KIND  TOK"),
    ] {
        let mut terminal = terminal("read x; $0 list $1; echo code=$?", &[&world.path]);
        terminal.get_process_mut().set_window_size(columns, 24).expect("resized");
        terminal.send_line("").expect("sent");
        let table = expect(&mut terminal, "code=0");
        let rows: Vec<_> = table.lines().filter(|row| !row.trim().is_empty()).collect();
        assert_eq!(rows.len(), 2, "{table}");
        let found = rows[0].split_whitespace().collect::<Vec<_>>();
        let head = head.split_whitespace().collect::<Vec<_>>();
        assert!(found.len() == head.len() && found.iter().zip(&head).all(|(a, b)| b.starts_with(a)), "{table}");
        assert!(rows.iter().all(|row| row.trim_end().chars().count() <= columns.into()), "{table}");
    }
    drop(guard);
}

#[tokio::test(flavor = "multi_thread")]
async fn hold_at_a_terminal_ends_with_the_input() {
    let world = World::new().await;
    let mut terminal = terminal("$0 hold $1; echo code=$?", &[&world.path]);
    world.contenders("a holder", |all| all.iter().any(Contender::is_holder)).await;
    terminal.send("\x04").expect("sent");
    expect(&mut terminal, "code=0");
    assert!(world.mutex().contenders().await.expect("listed").is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn hold_in_the_background_leaves_the_terminal_alone() {
    let world = World::new().await;
    // A job that has ended has no number any more.
    let script = "set -m; $0 hold $1 & id=$!; read x; echo got-$x; kill $id; wait $id; echo code=$?";
    let mut terminal = terminal_of("bash", script, &[&world.path]);
    terminal.expect(Regex("[0-9]+\r\n")).expect("a token");
    terminal.send_line("something").expect("sent");
    expect(&mut terminal, "got-something");
    expect(&mut terminal, "code=0");
}

#[tokio::test(flavor = "multi_thread")]
async fn break_asks_at_a_terminal() {
    let world = World::new().await;
    let _guard = world.mutex().lock().await.expect("held");
    let token = world.mutex().contenders().await.expect("listed")[0].token().to_string();
    for (answer, expected, left) in [("", 1, 1), ("n", 1, 1), ("y", 0, 0)] {
        let mut terminal = terminal("$0 break $1 $2; echo code=$?", &[&world.path, &token]);
        expect(&mut terminal, "[y/N] ");
        terminal.send_line(answer).expect("sent");
        expect(&mut terminal, &format!("code={expected}"));
        assert_eq!(world.mutex().contenders().await.expect("listed").len(), left, "{answer:?}");
    }
    assert_eq!(code(&zklock(["list", &world.path])), Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn job_in_the_background_leaves_the_terminal_alone() {
    let world = World::new().await;
    // Job control, as in an interactive shell.
    let script = "set -m; $0 run $1 -- sh -c 'echo ready; sleep 1000' & echo begun; read x; echo got-$x; kill %1; wait %1; echo code=$?";
    let mut terminal = terminal(script, &[&world.path]);
    expect(&mut terminal, "ready");
    terminal.send_line("something").expect("sent");
    expect(&mut terminal, "got-something");
    expect(&mut terminal, "code=143");
}

#[tokio::test(flavor = "multi_thread")]
async fn job_that_comes_to_the_foreground_gets_the_terminal() {
    // A shell may find that the job runs, and then it is sent no SIGCONT: only the command is stopped.
    for shell in ["sh", "bash"] {
        let world = World::new().await;
        let script = "set -m; $0 run $1 -- sh -c 'echo ready; read x; echo got-$x' & read x; fg; echo code=$?";
        let mut terminal = terminal_of(shell, script, &[&world.path]);
        expect(&mut terminal, "ready");
        terminal.send_line("for the shell").expect("sent");
        // The command's echo is on by then, or it has read already.
        terminal.send_line("something").expect("sent");
        expect(&mut terminal, "got-something");
        expect(&mut terminal, "code=0");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn job_in_the_background_that_wants_the_terminal_can_be_ended() {
    let world = World::new().await;
    let script =
        "set -m; $0 run $1 -- sh -c 'echo ready; read x; echo got-$x' & read x; kill %1; wait %1; echo code=$?";
    let mut terminal = terminal_of("bash", script, &[&world.path]);
    expect(&mut terminal, "ready");
    terminal.send_line("for the shell").expect("sent");
    expect(&mut terminal, "code=143");
}

#[tokio::test(flavor = "multi_thread")]
async fn ctrl_z_stops_nothing_when_the_input_is_a_file() {
    let world = World::new().await;
    let file = world.file("go-on").display().to_string();
    // With job control, the shell would show that a job has stopped, and go on itself. Ctrl-Z discards output, perhaps later
    // output, too, unless the terminal is set not to.
    let script = "stty noflsh; set -m; $0 run $1 -- sh -c 'echo ready; while ! test -e $0; do sleep 0.02; done; echo done' $2 </dev/null; echo code=$?";
    let mut terminal = terminal(script, &[&world.path, &file]);
    expect(&mut terminal, "ready");
    terminal.send("\x1a").expect("sent");
    std::fs::write(&file, "").expect("written");
    expect(&mut terminal, "done");
    expect(&mut terminal, "code=0");
}

#[tokio::test(flavor = "multi_thread")]
async fn command_whose_input_is_a_file_gets_the_terminal_when_it_asks() {
    let world = World::new().await;
    let script = "$0 run $1 -- sh -c 'echo ready; read x </dev/tty; echo got-$x' </dev/null; echo code=$?; read x; echo then-$x";
    let mut terminal = terminal(script, &[&world.path]);
    expect(&mut terminal, "ready");
    terminal.send_line("something").expect("sent");
    expect(&mut terminal, "got-something");
    expect(&mut terminal, "code=0");
    terminal.send_line("more").expect("sent");
    expect(&mut terminal, "then-more");
}

#[tokio::test(flavor = "multi_thread")]
async fn pipeline_keeps_its_terminal() {
    let world = World::new().await;
    let pager = "sh -c 'read line; echo $line; read x </dev/tty; echo got-$x; cat'";
    let script = format!("$0 run $1 -- sh -c 'echo ready; sleep 0.5; echo done' | {pager}");
    let mut terminal = terminal(&script, &[&world.path]);
    expect(&mut terminal, "ready");
    terminal.send_line("something").expect("sent");
    expect(&mut terminal, "got-something");
    expect(&mut terminal, "done");
}

#[tokio::test(flavor = "multi_thread")]
async fn pager_that_reads_while_the_command_has_the_terminal_goes_on_afterwards() {
    let world = World::new().await;
    let file = world.file("go-on").display().to_string();
    let asks = "read x </dev/tty; echo got-$x >&2; echo; while ! test -e $0; do sleep 0.02; done";
    let pager = "sh -c 'read line; echo reads; read y </dev/tty; echo then-$y'";
    // With job control, as at a prompt: without it, a read in the background fails.
    let script = format!("set -m; $0 run $1 -- sh -c 'echo ready >&2; {asks}' $2 | {pager}; :");
    let mut terminal = terminal(&script, &[&world.path, &file]);
    expect(&mut terminal, "ready");
    terminal.send_line("something").expect("sent");
    expect(&mut terminal, "got-something");
    expect(&mut terminal, "reads");
    std::fs::write(&file, "").expect("written");
    terminal.send_line("more").expect("sent");
    expect(&mut terminal, "then-more");
}

#[tokio::test(flavor = "multi_thread")]
async fn settings_of_a_command_that_was_killed_are_undone() {
    let guarded = if cfg!(target_os = "linux") { &["", "--die-with-parent"][..] } else { &[""] };
    for option in guarded {
        let world = World::new().await;
        let run = format!("$0 run {option} $1 -- sh -c 'stty -icanon; kill -9 $$'");
        let script = format!("{run}; echo code=$?; stty -a; echo ready; read x");
        let mut terminal = terminal(&script, &[&world.path]);
        expect(&mut terminal, "code=137");
        let settings = expect(&mut terminal, "ready");
        assert!(settings.contains(" icanon ") && !settings.contains("-icanon "), "{settings}");
    }
}
