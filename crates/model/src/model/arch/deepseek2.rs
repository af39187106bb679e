//! DeepSeek V2, V3 and R1, Kimi K2, GLM-4.7-Flash, and Mistral 4: attention through latents, and experts in groups with a
//! shared one beside them, after a few layers without.

use super::prelude::*;

pub fn build(b: &mut Builder) -> Result<Body> {
    latents(b, true)
}

pub fn build_mistral_4(b: &mut Builder) -> Result<Body> {
    latents(b, false)
}

/// `fixed`: cosines and sines do not grow where the file says how much scores do.
fn latents(b: &mut Builder, fixed: bool) -> Result<Body> {
    if b.u32("attention.key_length_mla")?.is_none() {
        return Err(b.error("it has keys and values for each head, as older files do (`attn_kv_b`): convert it again, with a latent"));
    }
    let head = b.size("attention.key_length_mla")?;
    let turned = b.size("rope.dimension_count")?;
    if turned >= head {
        return Err(b.wrong(
            "rope.dimension_count",
            turned,
            &format!("less than attention.key_length_mla {head}"),
        ));
    }
    let rank = b.size("attention.kv_lora_rank")?;
    // The sizes under the usual keys are those of a head's latent.
    let mut rope = rope::read(b, &Source::new(RopePairs::Neighbours, turned))?;
    let stretch = Stretch::read(b)?;
    let factor = if stretch.ext != 0.0 { stretch.factor.max(1.0) } else { stretch.factor };
    let grown = |times: f64| 1.0 + times * 0.1 * factor.ln();
    // Converters write a tenth of what it is.
    let times = b.f32("rope.scaling.yarn_log_multiplier")?.map(|times| 10.0 * f64::from(times));
    let growth = match times {
        // Without YaRN scores grow all the same.
        _ if stretch.ext == 0.0 => f64::from(rope.magnitude) * grown(1.0) * grown(times.unwrap_or(0.0)),
        None => grown(1.0),
        Some(times) if fixed || times == 1.0 => {
            rope.magnitude = 1.0;
            grown(times)
        }
        Some(times) => {
            rope.magnitude = (grown(1.0) / grown(times)) as f32;
            grown(1.0)
        }
    };
    let rope = b.rope(rope);
    let temperature = match b.positive_or_none("attention.temperature_scale")? {
        None => None,
        Some(scale) => {
            let first = b.optional_size("attention.temperature_length")?;
            let first = first.or(b.optional_size("rope.scaling.original_context_length")?);
            Some(Temperature { length: first.unwrap_or(b.n_ctx_train() as usize) as f32, scale })
        }
    };
    let mut decoder = Decoder::without_heads(b)?;
    if let Some(experts) = &mut decoder.experts {
        if b.u32("expert_gating_func")?.unwrap_or(0) == 0 && is_glm_flash(b) {
            experts.gating = Gating::Sigmoid;
        }
        if b.u32("expert_shared_count")?.unwrap_or(0) > 0 {
            experts.shared = Shared::Plain;
        }
    }
    decoder.latent = Some(Latent {
        n_head: b.size("attention.head_count")?,
        query_rank: match b.has("blk.0.attn_q_a.weight") {
            true => Some(b.size("attention.q_lora_rank")?),
            false => None,
        },
        rank,
        still: head - turned,
        turned,
        value: b.size("attention.value_length_mla")?,
        rope,
        scale: (growth * growth / (head as f64).sqrt()) as f32,
        temperature,
        residual: Residual::PLAIN,
    });
    decoder.has_mtp = true;
    decoder.build(b)
}

/// Its first files did not say how its experts are chosen.
fn is_glm_flash(b: &Builder) -> bool {
    [47, 48].contains(&b.dims().n_layer) && b.dims().n_vocab == 154_880
}
