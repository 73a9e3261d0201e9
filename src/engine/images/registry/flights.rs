//! The downloads under way. Two pulls of the same layer share one download.

use std::collections::HashMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};

use crate::base::http_client::{FetchError, SLICE, Stop};
use crate::base::locks::Locked;

#[derive(Debug)]
enum Flight<T> {
    Running,
    /// The download is done. Its result is kept as long as a pull uses it.
    Done(Weak<T>),
}

/// The downloads that pulls share. The key is the name of the downloaded object.
#[derive(Debug)]
pub(super) struct Flights<T> {
    running: Mutex<HashMap<String, Flight<T>>>,
    changed: Condvar,
}

impl<T> Default for Flights<T> {
    fn default() -> Self {
        Self {
            running: Mutex::default(),
            changed: Condvar::default(),
        }
    }
}

/// A download by one thread. If this value is dropped without a result, another thread may download the object.
struct Runs<'a, T> {
    flights: &'a Flights<T>,
    key: &'a str,
    done: Option<Weak<T>>,
}

impl<T> Drop for Runs<'_, T> {
    fn drop(&mut self) {
        let mut running = self.flights.lock();
        match self.done.take() {
            Some(done) => running.insert(self.key.to_owned(), Flight::Done(done)),
            None => running.remove(self.key),
        };
        self.flights.changed.notify_all();
    }
}

impl<T> Flights<T> {
    /// Returns the result of the download with this key. Also returns true if this thread has downloaded the object,
    /// with `download`. Waits while another thread downloads the object. If the download of this other thread fails,
    /// this thread downloads.
    pub(super) fn join(
        &self,
        key: &str,
        stop: &Stop,
        download: impl FnOnce() -> Result<Arc<T>, FetchError>,
    ) -> Result<(Arc<T>, bool), FetchError> {
        let mut running = self.lock();
        loop {
            stop.check()?;
            running.retain(|_, f| !matches!(f, Flight::Done(done) if done.strong_count() == 0));
            match running.get(key) {
                None => break,
                Some(Flight::Done(done)) => {
                    if let Some(done) = done.upgrade() {
                        return Ok((done, false));
                    }
                }
                Some(Flight::Running) => {
                    let waited = self.changed.wait_timeout(running, SLICE);
                    running = waited.unwrap_or_else(PoisonError::into_inner).0;
                }
            }
        }
        running.insert(key.to_owned(), Flight::Running);
        drop(running);
        let mut runs = Runs {
            flights: self,
            key,
            done: None,
        };
        let done = download()?;
        runs.done = Some(Arc::downgrade(&done));
        Ok((done, true))
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Flight<T>>> {
        self.running.locked()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_download_is_shared_and_a_failed_one_is_taken_over() {
        let flights = Flights::<u32>::default();
        let stop = Stop::default();
        let failed = flights.join("a", &stop, || Err(FetchError::failed("x")));
        assert!(failed.is_err());
        let (first, own) = flights.join("a", &stop, || Ok(Arc::new(1))).unwrap();
        assert!(own);
        let (second, own) = flights.join("a", &stop, || panic!("it is there")).unwrap();
        assert!(!own && Arc::ptr_eq(&first, &second));
        drop((first, second));
        assert!(
            flights.join("a", &stop, || Ok(Arc::new(2))).unwrap().1,
            "nobody has it any more"
        );
    }

    #[test]
    fn one_waits_for_the_other() {
        let flights = Flights::<u32>::default();
        let (begun, wait) = crossbeam_channel::bounded::<()>(0);
        std::thread::scope(|scope| {
            let other = scope.spawn(|| {
                let stop = Stop::default();
                flights.join("a", &stop, || {
                    begun.send(()).unwrap();
                    begun.send(()).unwrap();
                    Ok(Arc::new(7))
                })
            });
            wait.recv().unwrap();
            let ended = Stop::default();
            ended.set();
            assert!(flights.join("a", &ended, || Ok(Arc::new(0))).is_err());
            let same = scope.spawn(|| {
                flights
                    .join("a", &Stop::default(), || Ok(Arc::new(8)))
                    .unwrap()
            });
            wait.recv().unwrap();
            // The result of the first thread is kept until the waiting thread has it.
            let first = other.join().unwrap().unwrap();
            assert_eq!((*first.0, *same.join().unwrap().0), (7, 7));
        });
    }
}
