//! How far long work has come, on a terminal.

use std::{io::IsTerminal, time::Duration};

use portcullis::blobs::Progress;

use crate::output;

/// How often it is shown; what is done sooner shows nothing.
const TICK: Duration = Duration::from_millis(200);
const WIDTH: u64 = 30;

/// Does `work` and shows how far it is, where somebody watches; `amount` says how much is done, and of how much.
pub(crate) async fn show<T>(
    doing: &str,
    amount: impl Fn(u64, u64) -> String,
    progress: &Progress,
    work: impl Future<Output = T>,
) -> T {
    if !std::io::stderr().is_terminal() {
        return work.await;
    }
    follow(doing, amount, progress, work, output::status).await
}

/// Does `work` and tells how far it is, in the place of what was told before; nothing is left of that at the end.
async fn follow<T>(
    doing: &str,
    amount: impl Fn(u64, u64) -> String,
    progress: &Progress,
    work: impl Future<Output = T>,
    tell: impl Fn(&str),
) -> T {
    tokio::pin!(work);
    let mut shown = false;
    loop {
        match tokio::time::timeout(TICK, &mut work).await {
            Ok(done) => {
                if shown {
                    tell("");
                }
                return done;
            }
            Err(_) => {
                shown = true;
                let (done, total) = progress.get();
                tell(&bar(doing, &amount(done, total), done, total));
            }
        }
    }
}

fn bar(doing: &str, amount: &str, done: u64, total: u64) -> String {
    let part = |of: u64| done.min(total).saturating_mul(of).checked_div(total).unwrap_or(0);
    let full = usize::try_from(part(WIDTH)).unwrap_or(0);
    let rest = usize::try_from(WIDTH).unwrap_or(0).saturating_sub(full);
    format!(
        "{doing} [{}{}] {:>3} %, {amount}",
        "#".repeat(full),
        "-".repeat(rest),
        part(100)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_is_followed_while_it_takes_time_and_nothing_is_left_of_that() {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        let runtime = builder.enable_time().start_paused(true).build().unwrap();
        let told_of = |ticks: u32| {
            let (told, progress) = (std::cell::RefCell::new(Vec::new()), Progress::default());
            progress.begin(2);
            let work = async {
                for _ in 0..ticks {
                    tokio::time::sleep(TICK).await;
                    progress.advance(1);
                }
                "done"
            };
            let amount = |done, total| format!("{done} of {total}");
            let tell = |text: &str| told.borrow_mut().push(text.to_owned());
            let work = follow("doing", amount, &progress, work, tell);
            assert_eq!(runtime.block_on(work), "done");
            told.into_inner()
        };
        assert_eq!(told_of(0), [""; 0]);
        let told = told_of(2);
        let [during @ .., last] = &told[..] else {
            panic!("{told:?}")
        };
        assert!(
            !during.is_empty() && during.iter().all(|text| text.contains(" of 2")),
            "{told:?}"
        );
        assert_eq!(last, "");
    }

    #[test]
    fn bars() {
        let check = |done, total, expected: &str| {
            let amount = format!("{done} of {total} parts");
            assert_eq!(bar("doing", &amount, done, total), expected);
        };
        check(0, 0, &format!("doing [{}]   0 %, 0 of 0 parts", "-".repeat(30)));
        check(
            64,
            256,
            &format!(
                "doing [{}{}]  25 %, 64 of 256 parts",
                "#".repeat(7),
                "-".repeat(23)
            ),
        );
        check(
            256,
            256,
            &format!("doing [{}] 100 %, 256 of 256 parts", "#".repeat(30)),
        );
    }
}
