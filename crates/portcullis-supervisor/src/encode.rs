//! One message of ours as JSON text, for either transport.

use std::fmt;

use rmcp::model::{ClientJsonRpcMessage, ClientRequest, JsonRpcMessage};
use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{MapAccess, Visitor},
    ser::SerializeMap,
};
use serde_json::value::RawValue;

use crate::transport::RawArguments;

/// The JSON text of a message, on one line: no newline is in it.
///
/// A call whose request carries [`RawArguments`] gets exactly that text as `params.arguments`, whatever arguments
/// the SDK's own type holds; only raw newlines, which JSON has between tokens alone, become spaces. All else is as
/// the SDK writes it.
///
/// # Errors
/// The raw arguments are not JSON, or the SDK cannot write the message.
pub(crate) fn encode_message(message: &ClientJsonRpcMessage) -> Result<Vec<u8>, serde_json::Error> {
    let Some(raw) = raw_arguments(message) else {
        return serde_json::to_vec(message);
    };
    // JSON first: within a string a raw newline is none, and must not become a space that is.
    serde_json::from_str::<&RawValue>(raw)?;
    let raw = RawValue::from_string(raw.replace(['\n', '\r'], " "))?;
    let mut whole = members(&serde_json::to_string(message)?)?;
    for (name, value) in &mut whole.0 {
        if name == "params" {
            let mut params = members(value.get())?;
            params.0.retain(|(name, _)| name != "arguments");
            params.0.push(("arguments".to_owned(), raw.clone()));
            *value = serde_json::value::to_raw_value(&params)?;
        }
    }
    serde_json::to_vec(&whole)
}

fn raw_arguments(message: &ClientJsonRpcMessage) -> Option<&str> {
    match message {
        JsonRpcMessage::Request(request) => match &request.request {
            ClientRequest::CallToolRequest(call) => call
                .extensions
                .get::<RawArguments>()
                .map(|RawArguments(text)| text.as_ref()),
            _ => None,
        },
        _ => None,
    }
}

fn members(text: &str) -> Result<Members, serde_json::Error> {
    serde_json::from_str(text)
}

/// The members of an object in their order, each as its own text: what is not touched is written as it was read.
struct Members(Vec<(String, Box<RawValue>)>);

impl<'de> Deserialize<'de> for Members {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct InOrder;

        impl<'de> Visitor<'de> for InOrder {
            type Value = Members;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Members, A::Error> {
                let mut members = Vec::new();
                while let Some(member) = map.next_entry()? {
                    members.push(member);
                }
                Ok(Members(members))
            }
        }

        deserializer.deserialize_map(InOrder)
    }
}

impl Serialize for Members {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (name, value) in &self.0 {
            map.serialize_entry(name, value)?;
        }
        map.end()
    }
}

#[cfg(test)]
mod tests {
    use rmcp::model::{CallToolRequest, CallToolRequestParams, PingRequest, RequestId};

    use super::*;

    fn call(tool: &str, raw: Option<&str>) -> ClientJsonRpcMessage {
        let mut request = CallToolRequest::new(CallToolRequestParams::new(tool.to_owned()));
        if let Some(raw) = raw {
            request.extensions.insert(RawArguments(raw.into()));
        }
        ClientJsonRpcMessage::request(ClientRequest::CallToolRequest(request), RequestId::Number(7))
    }

    /// The text of `params.arguments` as it goes out.
    fn sent(raw: &str) -> Result<String, serde_json::Error> {
        #[derive(Deserialize)]
        struct Message {
            params: Params,
        }
        #[derive(Deserialize)]
        struct Params {
            arguments: Box<RawValue>,
        }
        let bytes = encode_message(&call("t", Some(raw)))?;
        assert!(!bytes.contains(&b'\n'));
        Ok(serde_json::from_slice::<Message>(&bytes)
            .unwrap()
            .params
            .arguments
            .get()
            .to_owned())
    }

    #[test]
    fn raw_arguments_go_out_word_for_word() {
        for raw in [
            "{}",
            r#"{"n":1.10,"big":123456789012345678901234567890,"exp":1E+2}"#,
            r#"{ "b" : 1 ,  "a" : 2, "b": 3 }"#,
            r#"{"text":"\u00e9 \/ \n","arguments":{"arguments":"params"}}"#,
            r#"{"private":"$serde_json::private::RawValue"}"#,
        ] {
            assert_eq!(sent(raw).unwrap(), raw);
        }
    }

    #[test]
    fn newlines_between_tokens_become_spaces() {
        assert_eq!(sent("{\r\n  \"a\":\n1}").unwrap(), "{    \"a\": 1}");
    }

    #[test]
    fn what_is_no_json_is_an_error() {
        for raw in [
            "{\"a\":\"x\ny\"}",
            "",
            "{",
            "{}{}",
            "{\"a\":\"\n\"",
            "NaN",
            "{\"a\":\"line\nbreak\"",
        ] {
            assert!(sent(raw).is_err(), "{raw:?}");
        }
    }

    #[test]
    fn all_else_is_as_the_sdk_writes_it() {
        let plain = call("a \"tool\"", None);
        assert_eq!(
            encode_message(&plain).unwrap(),
            serde_json::to_vec(&plain).unwrap()
        );
        let ping = ClientJsonRpcMessage::request(
            ClientRequest::PingRequest(PingRequest::default()),
            RequestId::String("x".into()),
        );
        assert_eq!(encode_message(&ping).unwrap(), serde_json::to_vec(&ping).unwrap());
        // With raw arguments, what stands beside them stays.
        let mut with: serde_json::Value =
            serde_json::from_slice(&encode_message(&call("t", Some("{\"x\":1}"))).unwrap()).unwrap();
        assert_eq!(with["params"]["arguments"].take(), serde_json::json!({"x": 1}));
        with["params"].as_object_mut().unwrap().remove("arguments");
        let mut without = serde_json::to_value(call("t", None)).unwrap();
        without["params"].as_object_mut().unwrap().remove("arguments");
        assert_eq!(with, without);
    }
}
