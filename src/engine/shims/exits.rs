//! Notices of a container's end, from its shim to the daemon. With a notice, a restart or the next init container need
//! not wait for the next relist.
//!
//! Invariants: a notice is a hint, and the relist is the truth; a lost notice costs a second. A shim never waits for a
//! daemon: it makes an empty file named after the pod's UID, and the listener removes the file. There are never more
//! files than pods.

use std::fs::{self, File};
use std::io;
use std::ops::ControlFlow;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::eventfd::{EfdFlags, EventFd};

use crate::api::PodUid;
use crate::base::clock::Moment;
use crate::base::directory_watch::{DirectoryWatch, WatchError};
use crate::base::paths::directories::make_private;
use crate::base::threads::Roster;

/// Stack of the listener's thread in bytes. The thread only reads names.
const STACK: usize = 128 * 1024;

/// Time for which a removed directory is not made again.
const REMAKE_PAUSE: Duration = Duration::from_millis(100);

/// Leaves a notice that a container of the pod has ended; the container's record says how. The shim calls this
/// function. An error is ignored, because a shim has nobody to report it to.
pub fn tell(dir: &Path, pod: &str) {
    // The record of an older podprobe has no directory for notices, so the path is empty.
    if dir.is_absolute() {
        let _ = File::create(dir.join(pod));
    }
}

/// A running listener for notices of containers' ends.
pub struct ExitListener {
    stopped: Arc<AtomicBool>,
    wake: Arc<EventFd>,
    thread: JoinHandle<()>,
}

impl ExitListener {
    /// Starts the thread `exits`, which calls `on_exit` with the pod's UID whenever a container has ended. `on_exit`
    /// must not block. If inotify has no room, the listener logs that and tries again; until then ends are seen at the
    /// next relist.
    ///
    /// # Errors
    /// Returns the system's error if the directory cannot be made, or if no descriptor or thread is left.
    pub fn spawn(
        dir: PathBuf,
        on_exit: impl Fn(&PodUid) + Send + 'static,
        roster: &Roster,
    ) -> io::Result<Self> {
        let watch = DirectoryWatch::new(dir.clone(), |_| true);
        Self::spawn_with(watch, dir, on_exit, roster)
    }

    fn spawn_with(
        mut watch: DirectoryWatch,
        dir: PathBuf,
        on_exit: impl Fn(&PodUid) + Send + 'static,
        roster: &Roster,
    ) -> io::Result<Self> {
        make_private(&dir)?;
        let wake = Arc::new(EventFd::from_flags(
            EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK,
        )?);
        let (stopped, ours) = (Arc::new(AtomicBool::new(false)), wake.clone());
        let stop = stopped.clone();
        let mut problem = None;
        let thread = roster.spawn("exits", STACK, move |pulse, _| {
            if stop.load(Ordering::Acquire) {
                return ControlFlow::Break(());
            }
            ensure(&mut watch, &mut problem);
            if dir.is_dir() {
                take(&dir, &on_exit);
                pulse.rest(|| wait(&mut watch, &ours, &stop));
            } else {
                // Another program is clearing /run. The pause lets that program finish: a new directory would be in its
                // way.
                pulse.rest(|| std::thread::park_timeout(REMAKE_PAUSE));
                let _ = make_private(&dir);
            }
            ControlFlow::Continue(())
        })?;
        Ok(Self {
            stopped,
            wake,
            thread,
        })
    }

    /// Tells the thread to end, and returns its handle for joining. The thread ends in a moment.
    pub fn stop(self) -> JoinHandle<()> {
        self.stopped.store(true, Ordering::Release);
        let _ = self.wake.write(1);
        self.thread
    }
}

/// Sets up the watch on the directory if it is not set up. The same problem is logged only once.
fn ensure(watch: &mut DirectoryWatch, problem: &mut Option<WatchError>) {
    match watch.ensure(Moment::now()) {
        Ok(()) if watch.retry_at().is_none() => *problem = None,
        Ok(()) => {}
        Err(e) => {
            if problem.as_ref() != Some(&e) {
                log::warn!("{e}; a container's end is seen at the next relist, up to 1 s later");
            }
            *problem = Some(e);
        }
    }
}

/// Waits until a file was written, the watch is to be set up again, or the thread is to stop. The events are not
/// needed: the directory has the same information.
fn wait(watch: &mut DirectoryWatch, wake: &EventFd, stop: &AtomicBool) {
    loop {
        let left = watch.retry_at().map(|at| at.since(Moment::now()));
        // Rounded up, because a wait that ends too early would spin.
        let timeout = left.map_or(PollTimeout::NONE, |left| {
            PollTimeout::try_from(left + Duration::from_millis(1)).unwrap_or(PollTimeout::MAX)
        });
        let mut fds = vec![PollFd::new(wake.as_fd(), PollFlags::POLLIN)];
        fds.extend(watch.fd().map(|fd| PollFd::new(fd, PollFlags::POLLIN)));
        let _ = poll(&mut fds, timeout);
        let retry = watch.retry_at().is_some_and(|at| Moment::now() >= at);
        if watch.drain().relist || retry || stop.load(Ordering::Acquire) {
            return;
        }
    }
}

/// Removes each notice, and then reports the end of the container. So if another container of the pod ends between the
/// two steps, its shim leaves a new notice.
fn take(dir: &Path, on_exit: &impl Fn(&PodUid)) {
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        if let Err(e) = fs::remove_file(entry.path()) {
            log::debug!("cannot remove {}: {e}", entry.path().display());
        }
        if let Some(uid) = entry.file_name().to_str() {
            on_exit(&uid.into());
        }
    }
}

#[cfg(test)]
mod tests {
    use crossbeam_channel::bounded;

    use super::*;

    const CEILING: Duration = Duration::from_secs(20);

    #[test]
    fn each_end_is_told_those_before_the_start_too_and_no_file_stays() {
        let dir = tempfile::tempdir().unwrap();
        tell(dir.path(), "early");
        let (send, told) = bounded(100);
        let listener = ExitListener::spawn(
            dir.path().to_owned(),
            move |uid| send.send(uid.to_string()).unwrap(),
            &Roster::default(),
        )
        .unwrap();
        assert_eq!(told.recv_timeout(CEILING).unwrap(), "early");
        for _ in 0..3 {
            tell(dir.path(), "a");
            assert_eq!(told.recv_timeout(CEILING).unwrap(), "a");
        }
        listener.stop().join().unwrap();
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_panic_costs_one_end_and_the_next_is_told() {
        let dir = tempfile::tempdir().unwrap();
        let (send, told) = bounded(100);
        let roster = Roster::default();
        let on_exit = move |uid: &PodUid| {
            assert_ne!(uid.as_str(), "bad", "made up");
            send.send(uid.to_string()).unwrap();
        };
        let listener = ExitListener::spawn(dir.path().to_owned(), on_exit, &roster).unwrap();
        tell(dir.path(), "bad");
        tell(dir.path(), "good");
        assert_eq!(told.recv_timeout(CEILING).unwrap(), "good");
        listener.stop().join().unwrap();
        assert_eq!(roster.panics(), [("exits", 1)]);
    }

    #[test]
    fn without_room_in_inotify_the_listener_looks_when_it_tries_again() {
        let dir = tempfile::tempdir().unwrap();
        let watch = DirectoryWatch::with_inotify(
            dir.path().to_owned(),
            |_| true,
            || Err(nix::errno::Errno::EMFILE),
        );
        let (send, told) = bounded(100);
        let listener = ExitListener::spawn_with(
            watch,
            dir.path().to_owned(),
            move |uid| send.send(uid.to_string()).unwrap(),
            &Roster::default(),
        )
        .unwrap();
        tell(dir.path(), "a");
        assert_eq!(told.recv_timeout(CEILING).unwrap(), "a");
        listener.stop().join().unwrap();
    }

    #[test]
    fn a_shim_without_a_listener_or_a_directory_goes_on() {
        let dir = tempfile::tempdir().unwrap();
        tell(&dir.path().join("missing"), "a");
        (0..3).for_each(|_| tell(dir.path(), "a"));
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }
}
