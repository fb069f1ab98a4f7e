//! What a row of a table expects of a decision.

use portcullis_types::{Answer, Approver, Decision, ReasonCode};

use super::fields::{Fields, Wrong, text};

pub(super) struct Expected {
    answer: Answer,
    code: Option<ReasonCode>,
    approver: Option<Approver>,
    policies: Option<Vec<String>>,
}

impl Expected {
    /// What a row expects.
    pub(super) fn read(fields: &mut Fields<'_>) -> Result<Self, Wrong> {
        let missing = (fields.line(), "`expect` is missing".to_owned());
        let (line, answer) = fields.text("expect")?.ok_or(missing)?;
        let answers = [Answer::Allow, Answer::Ask, Answer::Deny].map(|answer| (answer.to_string(), answer));
        let answer = one_of(answers, line, answer, "an answer: use `allow`, `ask` or `deny`")?;
        let codes = ReasonCode::ALL.map(|code| (code.to_string(), code));
        let approvers = [Approver::PersonOrHook, Approver::PersonOnly];
        let approvers = approvers.map(|approver| (approver_name(approver).to_owned(), approver));
        let code = fields
            .text("code")?
            .map(|(line, code)| one_of(codes, line, code, "a reason code"))
            .transpose()?;
        let approver = fields.text("approver")?;
        let approver = approver
            .map(|(line, name)| {
                one_of(
                    approvers,
                    line,
                    name,
                    "an approver: use `person_or_hook` or `person_only`",
                )
            })
            .transpose()?;
        let ids = fields.list("policies")?.map(|(_, ids)| {
            ids.iter()
                .map(|id| text("policies", id).map(|(_, id)| id.to_owned()))
                .collect::<Result<Vec<_>, _>>()
        });
        Ok(Self {
            answer,
            code,
            approver,
            policies: ids.transpose()?,
        })
    }

    /// In what the decision differs from what is expected, each as a sentence.
    pub(super) fn differences(&self, decision: &Decision) -> Vec<String> {
        let mut differences = Vec::new();
        if self.answer != decision.answer {
            differences.push(format!("expected {}, but it is {}", self.answer, decision.answer));
        }
        if let Some(code) = self.code.filter(|code| *code != decision.code) {
            differences.push(format!(
                "expected the code `{code}`, but it is `{}`",
                decision.code
            ));
        }
        if let Some(approver) = self
            .approver
            .filter(|approver| Some(*approver) != decision.approver)
        {
            let actual = decision.approver.map_or("nobody", approver_name);
            differences.push(format!(
                "expected the approver `{}`, but it is `{actual}`",
                approver_name(approver)
            ));
        }
        if let Some(expected) = &self.policies {
            let actual: Vec<_> = decision
                .policies
                .iter()
                .map(|policy| policy.id.as_str())
                .collect();
            if *expected != actual {
                let quoted = |ids: &[&str]| {
                    ids.iter()
                        .map(|id| format!("`{id}`"))
                        .collect::<Vec<_>>()
                        .join(", ")
                };
                let expected: Vec<_> = expected.iter().map(String::as_str).collect();
                differences.push(format!(
                    "expected the policies {}, but they are {}",
                    quoted(&expected),
                    quoted(&actual)
                ));
            }
        }
        differences
    }
}

fn one_of<T>(
    known: impl IntoIterator<Item = (String, T)>,
    line: usize,
    name: &str,
    what: &str,
) -> Result<T, Wrong> {
    let found = known.into_iter().find(|(known, _)| known == name);
    found
        .map(|(_, value)| value)
        .ok_or_else(|| (line, format!("`{name}` is not {what}")))
}

fn approver_name(approver: Approver) -> &'static str {
    match approver {
        Approver::PersonOrHook => "person_or_hook",
        Approver::PersonOnly => "person_only",
    }
}
