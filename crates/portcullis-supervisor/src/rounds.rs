//! Multi round trips (MCP 2026-07-28, SEP-2322): a tool that needs something of the user first answers with what it
//! needs, and is called again with the answers. The SDK does not see these results, since they pass as raw text.

use std::{collections::BTreeMap, sync::LazyLock};

use memchr::memmem::Finder;
use portcullis_types::ServerId;
use rmcp::model::ElicitRequestParams;
use serde::Deserialize;
use serde_json::{Value, value::RawValue};

use crate::{
    asking::{Asking, Holds},
    said::excerpt,
};

/// The most rounds that one call may take, and the most questions that one of them may hold.
pub(crate) const MAX_ROUNDS: usize = 8;
const MAX_QUESTIONS: usize = 8;

/// What goes along with a call that is made again.
#[derive(Debug, Clone, Default)]
pub(crate) struct Round {
    pub(crate) responses: Option<BTreeMap<String, Value>>,
    /// The server's own, word for word; never looked into.
    pub(crate) state: Option<String>,
}

/// What a tool needs before it can go on.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct InputRequired {
    #[serde(default)]
    input_requests: BTreeMap<String, InputRequest>,
    #[serde(default)]
    request_state: Option<String>,
}

#[derive(Debug, Deserialize)]
struct InputRequest {
    method: String,
    #[serde(default)]
    params: Value,
}

impl InputRequired {
    /// `raw` as such a result; `None` for every other. One that says of itself twice what it is, and could be taken
    /// for one, is an error: whoever reads it next would take the other word.
    pub(crate) fn read(raw: &str) -> Option<Result<Self, serde_json::Error>> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Kind<'a> {
            #[serde(borrow, default)]
            result_type: Option<&'a RawValue>,
        }
        // Nearly every result is of another kind: only those that may hold the word are parsed.
        if !raw.starts_with('{') || !may_hold_the_word(raw.as_bytes()) {
            return None;
        }
        let kind: Kind<'_> = match serde_json::from_str(raw) {
            Ok(kind) => kind,
            Err(error) => return Some(Err(error)),
        };
        let said = serde_json::from_str::<String>(kind.result_type?.get()).ok()?;
        (said == "input_required").then(|| serde_json::from_str(raw))
    }

    /// The next round, with an answer to each question. Only elicitations are answered; the error names what else
    /// was wanted.
    pub(crate) async fn answer(self, server: &ServerId, asking: &Asking) -> Result<Round, String> {
        let count = self.input_requests.len();
        if count > MAX_QUESTIONS {
            return Err(format!(
                "the tool asks {count} questions at once, and {MAX_QUESTIONS} is the most"
            ));
        }
        let mut responses = BTreeMap::new();
        for (key, request) in self.input_requests {
            if request.method != "elicitation/create" {
                return Err(format!(
                    "the tool wants `{}` of the client, which is not offered",
                    excerpt(&request.method)
                ));
            }
            let params = serde_json::from_value::<ElicitRequestParams>(request.params).ok();
            let result = asking.ask(server, params, Holds::ItsOwn).await;
            responses.insert(
                key,
                serde_json::to_value(result).map_err(|error| error.to_string())?,
            );
        }
        let responses = (!responses.is_empty()).then_some(responses);
        Ok(Round {
            responses,
            state: self.request_state,
        })
    }
}

/// Whether `input_required` stands in `raw`, also with letters of it escaped, as no writer of JSON does without intent.
fn may_hold_the_word(raw: &[u8]) -> bool {
    // What searches is made once, since that costs more than to search a short result.
    static WORD: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new("input_required"));
    static ESCAPE: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(r"\u00"));
    let is_letter = |at: usize| raw.get(at + 4).is_some_and(|digit| matches!(digit, b'5'..=b'7'));
    WORD.find(raw).is_some() || ESCAPE.find_iter(raw).any(is_letter)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ELICITS: &str = r#"{"resultType":"input_required","requestState":"s\u00e9al","inputRequests":{
        "name":{"method":"elicitation/create","params":{"mode":"form","message":"Who?","requestedSchema":{"type":"object","properties":{}}}},
        "odd":{"method":"elicitation/create","params":{"message":7}}}}"#;

    #[tokio::test]
    async fn with_nobody_to_answer_each_elicitation_is_declined_and_the_state_goes_back() {
        let required = InputRequired::read(ELICITS).unwrap().unwrap();
        let round = required
            .answer(&"a".parse().unwrap(), &Asking::new(None))
            .await
            .unwrap();
        assert_eq!(round.state.as_deref(), Some("séal"));
        let responses = serde_json::to_value(round.responses.unwrap()).unwrap();
        assert_eq!(
            responses,
            serde_json::json!({"name": {"action": "decline"}, "odd": {"action": "decline"}})
        );
    }

    #[tokio::test]
    async fn what_else_is_wanted_of_the_client_is_refused_by_name() {
        let raw = r#"{"resultType":"input_required","inputRequests":{"x":{"method":"files/all"}}}"#;
        let required = InputRequired::read(raw).unwrap().unwrap();
        let error = required
            .answer(&"a".parse().unwrap(), &Asking::new(None))
            .await
            .unwrap_err();
        assert!(error.contains("`files/all`"), "{error}");
    }

    #[tokio::test]
    async fn a_round_of_too_many_questions_is_refused_as_a_whole() {
        let many: BTreeMap<_, _> = (0..=MAX_QUESTIONS)
            .map(|n| (n.to_string(), serde_json::json!({"method": "elicitation/create"})))
            .collect();
        let raw = serde_json::json!({"resultType": "input_required", "inputRequests": many}).to_string();
        let required = InputRequired::read(&raw).unwrap().unwrap();
        let error = required
            .answer(&"a".parse().unwrap(), &Asking::new(None))
            .await
            .unwrap_err();
        assert!(error.contains("9 questions"), "{error}");
    }

    #[test]
    fn the_word_is_known_however_it_is_written() {
        for raw in [
            r#"{"resultType":"input_required"}"#,
            r#"{"resultType":"input\u005frequired"}"#,
            r#"{"content":[],"result\u0054ype":"\u0069nput\u005Frequire\u0064"}"#,
        ] {
            assert!(InputRequired::read(raw).unwrap().is_ok(), "{raw}");
        }
        for raw in [
            r#"{"resultType":"complete","resultType":"input_required"}"#,
            r#"{"resultType":"input_required","result\u0054ype":"complete"}"#,
        ] {
            let error = InputRequired::read(raw).unwrap().unwrap_err();
            assert!(
                error.to_string().contains("duplicate field `resultType`"),
                "{error}"
            );
        }
    }

    #[test]
    fn other_results_that_hold_the_word_are_none() {
        for raw in [
            r#"{"content":[{"type":"text","text":"input_required"}]}"#,
            r#"{"resultType":"complete","content":["input_required"]}"#,
            r#"{"content":{"resultType":"input_required"}}"#,
            "input_required",
            r#"["input_required"]"#,
            r#"{"content":[{"type":"text","text":"gr\u00fc\u00dfe \u005f"}]}"#,
            r#"{"resultType":{"input_required":1},"content":[]}"#,
        ] {
            assert!(InputRequired::read(raw).is_none(), "{raw}");
        }
    }
}
