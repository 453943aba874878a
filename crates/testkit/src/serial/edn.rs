//! Histories of lists in EDN, as Elle reads them, for other checkers.
//!
//! ```text
//!   {:index 0 :type :invoke :process 3 :time 17 :f :txn :value [[:append 5 1] [:r 5 nil]]}
//!   {:index 1 :type :ok     :process 3 :time 21 :f :txn :value [[:append 5 1] [:r 5 [1]]]}
//! ```
//!
//! `:ok` is committed, `:fail` aborted, `:info` unknown. Registers are omitted: Elle would have to
//! guess the order of their versions. Run `elle-cli --model list-append --consistency-models
//! strict-serializable FILE`. `outside/` in this crate has a checker based on Porcupine.
//!
//! Source: the documentation of Elle and elle-cli.

use std::fmt::Write;

use super::{Event, History, Outcome};

/// The history as text: one line per event, in time order.
pub fn list_append(history: &History) -> String {
    let mut lines: Vec<(u64, String)> = Vec::new();
    for transaction in &history.transactions {
        let [called, returned] =
            [false, true].map(|answered| events(&transaction.events, answered));
        if called.is_empty() {
            continue;
        }
        let outcome = match transaction.outcome {
            Outcome::Committed => "ok",
            Outcome::Aborted => "fail",
            Outcome::Unknown => "info",
        };
        let mut line = |time: u64, kind: &str, value: &str| {
            let process = transaction.process;
            let text =
                format!(":type :{kind} :process {process} :time {time} :f :txn :value [{value}]");
            lines.push((time, text));
        };
        line(transaction.began, "invoke", &called);
        line(transaction.ended, outcome, &returned);
    }
    lines.sort();
    let mut text = String::new();
    for (index, (_, line)) in lines.iter().enumerate() {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{{:index {index} {line}}}");
    }
    text
}

/// Writes the history to `NAME.edn` in the directory given by `SILTSTONE_EDN`, if it is set.
///
/// # Errors
/// I/O errors.
pub fn write_file(history: &History, name: &str) -> std::io::Result<()> {
    match std::env::var_os("SILTSTONE_EDN") {
        Some(directory) => {
            let file = std::path::Path::new(&directory).join(format!("{name}.edn"));
            std::fs::write(file, list_append(history))
        }
        None => Ok(()),
    }
}

fn events(events: &[Event], is_answered: bool) -> String {
    let texts = events.iter().filter_map(|event| match event {
        Event::Append(key, version) => Some(format!("[:append {key} {version}]")),
        Event::List(key, _) if !is_answered => Some(format!("[:r {key} nil]")),
        Event::List(key, list) => {
            let list: Vec<_> = list.iter().map(ToString::to_string).collect();
            Some(format!("[:r {key} [{}]]", list.join(" ")))
        }
        Event::Write(..) | Event::Read(..) => None,
    });
    texts.collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::super::Transaction;
    use super::*;

    #[test]
    fn history_is_written_in_time_order() {
        let transaction = |began, ended, outcome, events| Transaction {
            process: began,
            began,
            ended,
            outcome,
            events,
        };
        let history = History {
            transactions: vec![
                transaction(2, 3, Outcome::Aborted, vec![Event::List(5, vec![])]),
                transaction(
                    1,
                    4,
                    Outcome::Committed,
                    vec![Event::Append(5, 7), Event::List(5, vec![6, 7]), Event::Write(1, 1)],
                ),
                transaction(5, 6, Outcome::Committed, vec![Event::Write(1, 2)]),
            ],
            ..History::default()
        };
        assert_eq!(
            list_append(&history),
            "{:index 0 :type :invoke :process 1 :time 1 :f :txn :value [[:append 5 7] [:r 5 nil]]}\n\
             {:index 1 :type :invoke :process 2 :time 2 :f :txn :value [[:r 5 nil]]}\n\
             {:index 2 :type :fail :process 2 :time 3 :f :txn :value [[:r 5 []]]}\n\
             {:index 3 :type :ok :process 1 :time 4 :f :txn :value [[:append 5 7] [:r 5 [6 7]]]}\n"
        );
    }
}
