//! Runs what the HTTP libraries spawn on the edge's own thread.
//!
//! Each task can be cut from outside: an HTTP library that waits for room in a
//! socket does not poll the response body, so a slow client is cut by ending
//! the task that serves it (ruling R19): the connection of HTTP/1.1, the one
//! stream of HTTP/2.

use std::future::Future;
use std::rc::Rc;
use tokio::sync::Notify;

tokio::task_local! {
    static CUT: Rc<Notify>;
}

/// Spawns onto the current `LocalSet`.
#[derive(Debug, Clone, Copy)]
pub(super) struct LocalExecutor;

impl<F> hyper::rt::Executor<F> for LocalExecutor
where
    F: Future + 'static,
{
    fn execute(&self, future: F) {
        tokio::task::spawn_local(cuttable(async move {
            future.await;
        }));
    }
}

/// Runs `future` until it ends or its [`current_cut`] is notified.
pub(super) async fn cuttable(future: impl Future<Output = ()>) {
    let cut = Rc::new(Notify::new());
    CUT.scope(cut.clone(), async move {
        tokio::select! {
            () = future => {}
            () = cut.notified() => {}
        }
    })
    .await;
}

/// What ends the innermost [`cuttable`] task that is running.
pub(super) fn current_cut() -> Option<Rc<Notify>> {
    CUT.try_with(Rc::clone).ok()
}
