//! Templates for models whose files have none, or a bad one.

const CHATML: &str = "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + \
    '<|im_end|>\\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}";
const LLAMA3: &str = "{% for message in messages %}{{ '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n' + \
    message['content'] | trim + '<|eot_id|>' }}{% endfor %}\
    {% if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{% endif %}";
const COMMAND_R: &str = "{% for message in messages %}{{ '<|START_OF_TURN_TOKEN|><|' + \
    {'system': 'SYSTEM', 'user': 'USER', 'assistant': 'CHATBOT'}[message['role']] + '_TOKEN|>' + \
    message['content'] | trim + '<|END_OF_TURN_TOKEN|>' }}{% endfor %}\
    {% if add_generation_prompt %}{{ '<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>' }}{% endif %}";

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
