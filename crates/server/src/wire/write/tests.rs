use serde_json::json;

use super::*;
use crate::{
    chat::{Answer, Delta, ToolCall},
    sampler::SamplerConfig,
    wire::answer::{Likely, Reason, Timings},
};

fn header() -> Header {
    Header { id: "1".into(), created: 7, model: "m".into(), fingerprint: "b1".into() }
}

fn likely(bytes: &[u8], logprob: f32) -> Likely {
    Likely {
        id: 5,
        bytes: bytes.into(),
        logprob,
        top: vec![(5, bytes.into(), logprob), (6, b"y".into(), f32::NEG_INFINITY)],
    }
}

fn answer() -> Whole {
    let calls = vec![ToolCall { id: "c1".into(), name: "f".into(), arguments: "{\"x\": 1}".into() }];
    Whole {
        text: "hm</think>Hi".into(),
        answer: Answer { reasoning: "hm".into(), content: "Hi".into(), calls },
        reason: Reason::End,
        tokens: vec![5],
        likely: vec![likely(b"Hi", -0.5)],
        prompt_likely: vec![likely(b"a", 0.0), likely(b"\xff", -1.0)],
        end_likely: Some(likely(b"</s>", -0.75)),
        prompt: "ab".into(),
        prompt_tokens: 10,
        truncated: false,
        timings: Timings {
            cached: 4,
            prompt: 6,
            prompt_ms: 3.0,
            predicted: 3,
            predicted_ms: 4.0,
            ..Timings::default()
        },
        speculation: Some(json!({ "speedup": 1.5 })),
        slot: 0,
        seed: 42,
        settings: json!({ "n_predict": 8 }),
    }
}

fn text_only() -> Whole {
    let answer_text = Answer { content: "Hi".into(), ..Answer::default() };
    Whole { answer: answer_text, text: "Hi".into(), ..answer() }
}

fn progress() -> Progress {
    Progress { total: 10, cached: 4, processed: 4, ms: 0.0, timings: None }
}

fn deltas() -> Vec<Delta> {
    vec![
        Delta::Reasoning("h".into()),
        Delta::Reasoning("m".into()),
        Delta::Content("Hi".into()),
        Delta::Call { index: 0, id: Some("c1".into()), name: "f".into() },
        Delta::Arguments { index: 0, text: "{\"x\":".into() },
        Delta::Arguments { index: 0, text: " 1}".into() },
    ]
}

fn writer(shape: Shape, change: impl Fn(&mut Settings)) -> Writer {
    let mut settings = Settings::new(SamplerConfig::default());
    change(&mut settings);
    Writer::new(shape, header(), settings)
}

/// All that is sent of an answer whose pieces come one by one.
fn stream(shape: Shape, change: impl Fn(&mut Settings)) -> (Vec<Frame>, Option<&'static str>) {
    let mut writer = writer(shape, change);
    let mut frames = writer.begins(0, &progress(), "ab", &[]);
    for delta in deltas() {
        frames.extend(writer.more(0, &More { deltas: vec![delta], ..More::default() }));
    }
    frames.extend(writer.ended(0, &answer()));
    let (more, word) = writer.done(&[answer()]);
    frames.extend(more);
    (frames, word)
}

#[test]
fn a_chat_completion() {
    let body = writer(Shape::Chat, |settings| settings.logprobs = Some(2)).whole(&[answer()]);
    assert_eq!((&body["id"], &body["object"]), (&json!("chatcmpl-1"), &json!("chat.completion")));
    let choice = &body["choices"][0];
    assert_eq!(choice["finish_reason"], "tool_calls");
    assert_eq!(
        (&choice["message"]["content"], &choice["message"]["reasoning_content"]),
        (&json!("Hi"), &json!("hm"))
    );
    let call =
        json!({ "type": "function", "id": "c1", "function": { "name": "f", "arguments": "{\"x\": 1}" } });
    assert_eq!(choice["message"]["tool_calls"], json!([call]));
    let one = &choice["logprobs"]["content"][0];
    assert_eq!(
        (&one["token"], &one["bytes"], &one["logprob"]),
        (&json!("Hi"), &json!([72, 105]), &json!(-0.5))
    );
    assert!(one["top_logprobs"][1]["logprob"].as_f64().unwrap() < -1e38);
    assert_eq!(
        body["usage"],
        json!({ "completion_tokens": 3, "prompt_tokens": 10, "total_tokens": 13, "prompt_tokens_details": { "cached_tokens": 4 } })
    );
    assert_eq!(body["timings"]["predicted_per_second"], json!(500.0));
    assert!(body["timings"].as_object().unwrap().values().all(serde_json::Value::is_number), "{body}");
    assert_eq!(body["speculation"]["speedup"], json!(1.5));
    assert_eq!(body["seed"], 42);
}

/// What openai-python's stream helper puts together.
#[test]
fn a_streamed_chat_completion() {
    let (frames, word) = stream(Shape::Chat, |settings| settings.include_usage = true);
    assert_eq!(word, Some("data: [DONE]\n\n"));
    let first = &frames[0].data["choices"][0]["delta"];
    assert_eq!(*first, json!({ "role": "assistant", "content": null }));
    let (mut content, mut arguments) = (String::new(), String::new());
    for frame in &frames[1..] {
        assert_eq!(
            (&frame.data["id"], &frame.data["object"]),
            (&json!("chatcmpl-1"), &json!("chat.completion.chunk"))
        );
        let delta = &frame.data["choices"][0]["delta"];
        content += delta["content"].as_str().unwrap_or_default();
        arguments += delta["tool_calls"][0]["function"]["arguments"].as_str().unwrap_or_default();
    }
    assert_eq!((content.as_str(), arguments.as_str()), ("Hi", "{\"x\": 1}"));
    let [.., last, usage] = &frames[..] else { panic!("two frames at least") };
    assert_eq!(
        (&last.data["choices"][0]["finish_reason"], &last.data["choices"][0]["delta"]),
        (&json!("tool_calls"), &json!({}))
    );
    assert_eq!((&usage.data["choices"], &usage.data["usage"]["total_tokens"]), (&json!([]), &json!(13)));
    assert!(frames[0].text().starts_with("data: {") && frames[0].text().ends_with("}\n\n"));
}

/// What lm-eval reads.
#[test]
fn a_completion_with_its_prompt() {
    let body = writer(Shape::Completions, |settings| {
        settings.echo = true;
        settings.logprobs = Some(2);
    })
    .whole(&[text_only()]);
    let choice = &body["choices"][0];
    assert_eq!((&choice["text"], &choice["finish_reason"]), (&json!("abHi"), &json!("stop")));
    let logprobs = &choice["logprobs"];
    assert_eq!(logprobs["tokens"], json!(["a", "bytes:\\xff", "Hi", "</s>"]));
    assert_eq!(logprobs["token_logprobs"], json!([null, -1.0, -0.5, -0.75]));
    assert_eq!(logprobs["text_offset"], json!([0, 1, 11, 13]));
    assert!(logprobs["top_logprobs"][0].is_null());
    // Greedy: the token's number is the best one's.
    assert_eq!(logprobs["top_logprobs"][2]["Hi"], logprobs["token_logprobs"][2]);
    assert_eq!(
        writer(Shape::Completions, |_| ()).whole(&[text_only()])["choices"][0]["logprobs"],
        Value::Null
    );
}

#[test]
fn a_streamed_completion_with_its_prompt() {
    let mut writer = writer(Shape::Completions, |settings| settings.echo = true);
    let first = &writer.begins(1, &progress(), "ab", &[])[0].data["choices"][0];
    assert_eq!((&first["text"], &first["index"]), (&json!("ab"), &json!(1)));
    // Each answer is counted by itself.
    for (index, expected) in [(1, [2, 4]), (1, [5, 7]), (0, [0, 2])] {
        let likely = vec![likely(b"Hi", -0.5), likely(b"!", -1.0)];
        let frame = &writer.more(index, &More { text: "Hi!".into(), likely, ..More::default() })[0].data;
        assert_eq!(frame["choices"][0]["logprobs"]["text_offset"], json!(expected));
    }
}

/// Two tokens may have the same text: as itself, and as its byte.
#[test]
fn of_the_same_text_the_likeliest_counts() {
    let top = vec![(5, b"a".to_vec(), -0.5), (6, b"b".to_vec(), -1.0), (7, b"a".to_vec(), -2.0)];
    let likely = vec![Likely { top, ..likely(b"a", -0.5) }];
    let whole = Whole { likely, ..text_only() };
    let body = writer(Shape::Completions, |settings| settings.logprobs = Some(3)).whole(&[whole]);
    let top = &body["choices"][0]["logprobs"]["top_logprobs"][0];
    assert_eq!(*top, json!({ "a": -0.5, "b": -1.0 }));
}

#[test]
fn llama_servers_own() {
    let one = writer(Shape::Llama, |settings| settings.return_tokens = true).whole(&[text_only()]);
    assert_eq!(
        (&one["content"], &one["tokens"], &one["stop_type"]),
        (&json!("Hi"), &json!([5]), &json!("eos"))
    );
    let fields = ["content", "generation_settings/n_predict", "missing"].map(str::to_owned);
    let few =
        writer(Shape::Llama, |settings| settings.response_fields = fields.to_vec()).whole(&[text_only()]);
    assert_eq!(few, json!({ "content": "Hi", "generation_settings/n_predict": 8 }));
    let two = writer(Shape::Llama, |_| ()).whole(&[text_only(), text_only()]);
    assert_eq!((two.as_array().unwrap().len(), &two[1]["index"]), (2, &json!(1)));
    let mut writer = writer(Shape::Llama, |_| ());
    let more =
        More { text: "Hi".into(), tokens: vec![5], likely: vec![likely(b"Hi", -0.5)], ..More::default() };
    let frame = &writer.more(0, &more)[0].data;
    assert_eq!((&frame["stop"], &frame["tokens"]), (&json!(false), &json!([5])));
    assert_eq!(frame["completion_probabilities"].as_array().unwrap().len(), 1);
    let last = &writer.ended(0, &text_only())[0].data;
    assert_eq!((&last["stop"], &last["content"]), (&json!(true), &json!("")));
}

#[test]
fn a_response() {
    let body = writer(Shape::Responses, |_| ()).whole(&[answer()]);
    let kinds: Vec<&str> =
        body["output"].as_array().unwrap().iter().map(|item| item["type"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["reasoning", "message", "function_call"]);
    assert_eq!(body["output"][1]["content"][0]["text"], "Hi");
    assert_eq!((&body["output"][2]["call_id"], &body["usage"]["input_tokens"]), (&json!("c1"), &json!(10)));
}

#[test]
fn a_response_that_was_cut() {
    let cut = Whole { reason: Reason::Limit, ..answer() };
    let mut writer = writer(Shape::Responses, |_| ());
    let whole = writer.whole(std::slice::from_ref(&cut));
    for delta in deltas() {
        writer.more(0, &More { deltas: vec![delta], ..More::default() });
    }
    let streamed = writer.ended(0, &cut).pop().unwrap().data["response"].clone();
    for body in [whole, streamed] {
        assert_eq!(
            (&body["status"], &body["incomplete_details"]["reason"]),
            (&json!("incomplete"), &json!("max_output_tokens"))
        );
        let statuses: Vec<&Value> =
            body["output"].as_array().unwrap().iter().map(|item| &item["status"]).collect();
        assert_eq!(statuses, ["completed", "completed", "incomplete"]);
    }
}

#[test]
fn a_streamed_response() {
    let (frames, word) = stream(Shape::Responses, |_| ());
    assert_eq!(word, None);
    let events: Vec<&str> = frames.iter().map(|frame| frame.event.unwrap()).collect();
    assert_eq!(
        events,
        [
            "response.created",
            "response.in_progress",
            "response.output_item.added",
            "response.reasoning_text.delta",
            "response.reasoning_text.delta",
            "response.reasoning_text.done",
            "response.output_item.done",
            "response.output_item.added",
            "response.content_part.added",
            "response.output_text.delta",
            "response.output_text.done",
            "response.content_part.done",
            "response.output_item.done",
            "response.output_item.added",
            "response.function_call_arguments.delta",
            "response.function_call_arguments.delta",
            "response.function_call_arguments.done",
            "response.output_item.done",
            "response.completed",
        ]
    );
    for (n, frame) in frames.iter().enumerate() {
        assert_eq!((&frame.data["type"], &frame.data["sequence_number"]), (&json!(events[n]), &json!(n)));
    }
    assert_eq!(frames[16].data["arguments"], "{\"x\": 1}");
    let last = &frames.last().unwrap().data["response"];
    assert_eq!((&last["id"], &last["output"][1]["content"][0]["text"]), (&json!("resp_1"), &json!("Hi")));
}

#[test]
fn a_message() {
    let body = writer(Shape::Messages, |_| ()).whole(&[answer()]);
    let kinds: Vec<&str> =
        body["content"].as_array().unwrap().iter().map(|item| item["type"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["thinking", "text", "tool_use"]);
    assert_eq!(
        (&body["content"][2]["input"], &body["stop_reason"]),
        (&json!({ "x": 1 }), &json!("tool_use"))
    );
    assert_eq!(body["usage"], json!({ "cache_read_input_tokens": 4, "input_tokens": 6, "output_tokens": 3 }));
    assert!(body.get("timings").is_none());
    let stopped = Whole { reason: Reason::Stop("END".into()), ..text_only() };
    let body = writer(Shape::Messages, |_| ()).whole(&[stopped]);
    assert_eq!((&body["stop_reason"], &body["stop_sequence"]), (&json!("stop_sequence"), &json!("END")));
}

#[test]
fn a_streamed_message() {
    let (frames, _) = stream(Shape::Messages, |_| ());
    let events: Vec<(&str, Option<u64>)> =
        frames.iter().map(|frame| (frame.event.unwrap(), frame.data["index"].as_u64())).collect();
    assert_eq!(
        events,
        [
            ("message_start", None),
            ("content_block_start", Some(0)),
            ("content_block_delta", Some(0)),
            ("content_block_delta", Some(0)),
            ("content_block_delta", Some(0)),
            ("content_block_stop", Some(0)),
            ("content_block_start", Some(1)),
            ("content_block_delta", Some(1)),
            ("content_block_stop", Some(1)),
            ("content_block_start", Some(2)),
            ("content_block_delta", Some(2)),
            ("content_block_delta", Some(2)),
            ("content_block_stop", Some(2)),
            ("message_delta", None),
            ("message_stop", None),
        ]
    );
    assert_eq!(frames[0].data["message"]["usage"]["input_tokens"], 6);
    assert_eq!(frames[4].data["delta"]["type"], "signature_delta");
    assert_eq!(frames[9].data["content_block"]["name"], "f");
    assert!(
        frames[1].text().starts_with("event: content_block_start\ndata: {\"type\":\"content_block_start\"")
    );
}
