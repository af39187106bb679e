//! Templates for models whose files have none, or a bad one.

use crate::{Tokenizer, tokenizer::EncodeOptions};

const CHATML: &str = "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + \
    '<|im_end|>\\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}";
const LLAMA3: &str = "{% for message in messages %}{{ '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n' + \
    message['content'] | trim + '<|eot_id|>' }}{% endfor %}\
    {% if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{% endif %}";
const COMMAND_R: &str = "{% for message in messages %}{{ '<|START_OF_TURN_TOKEN|><|' + \
    {'system': 'SYSTEM', 'user': 'USER', 'assistant': 'CHATBOT'}[message['role']] + '_TOKEN|>' + \
    message['content'] | trim + '<|END_OF_TURN_TOKEN|>' }}{% endfor %}\
    {% if add_generation_prompt %}{{ '<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>' }}{% endif %}";

/// What turns end with in these templates. A vocabulary that was made for others has no such token, and a model then writes
/// it letter by letter, if at all.
const ENDS: [&str; 3] = ["<|im_end|>", "<|eot_id|>", "<|END_OF_TURN_TOKEN|>"];

/// Texts that end an answer, because a template ends turns with them and the vocabulary has no token for it.
pub fn written_ends(template: &str, tokenizer: &Tokenizer) -> Vec<String> {
    let is_token = |end: &str| {
        let ids = tokenizer.encode(end, EncodeOptions { add_special: false, parse_special: true });
        ids.len() == 1
    };
    let ends = ENDS.iter().filter(|end| template.contains(**end) && !is_token(end));
    ends.map(|end| (*end).to_owned()).collect()
}

/// Templates that have names, as in llama.cpp.
pub const KNOWN_TEMPLATES: [&str; 3] = ["chatml", "llama3", "command-r"];

/// A template by its name.
pub fn known_template(name: &str) -> Option<&'static str> {
    match name {
        "chatml" => Some(CHATML),
        "llama3" => Some(LLAMA3),
        "command-r" => Some(COMMAND_R),
        _ => None,
    }
}
