//! Which type each matrix gets: one type throughout, or llama.cpp's mixtures.

use std::str::FromStr;

use crate::quant::GgmlType;

/// What a mixture depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The table of embeddings where it is not the head too.
    Embedding,
    Head,
    AttnV,
    FfnDown,
    Other,
}

/// `q4_0`, `q6_k`, `f16` and so on: every matrix in that type. `q4_k_s`, `q4_k_m`, `q5_k_s`, `q5_k_m`: as
/// llama.cpp's quantizer mixes them without an importance matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mix {
    name: &'static str,
    base: GgmlType,
    style: Style,
    /// `general.file_type`.
    file_type: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Style {
    Pure,
    Small,
    Medium,
}

const MIXES: &[Mix] = {
    const fn mix(name: &'static str, base: GgmlType, style: Style, file_type: u32) -> Mix {
        Mix { name, base, style, file_type }
    }
    use Style::{Medium, Pure, Small};
    &[
        mix("q4_0", GgmlType::Q4_0, Pure, 2),
        mix("q4_1", GgmlType::Q4_1, Pure, 3),
        mix("q5_0", GgmlType::Q5_0, Pure, 8),
        mix("q5_1", GgmlType::Q5_1, Pure, 9),
        mix("q8_0", GgmlType::Q8_0, Pure, 7),
        mix("q4_k", GgmlType::Q4_K, Pure, 14),
        mix("q4_k_s", GgmlType::Q4_K, Small, 14),
        mix("q4_k_m", GgmlType::Q4_K, Medium, 15),
        mix("q5_k", GgmlType::Q5_K, Pure, 16),
        mix("q5_k_s", GgmlType::Q5_K, Small, 16),
        mix("q5_k_m", GgmlType::Q5_K, Medium, 17),
        mix("q6_k", GgmlType::Q6_K, Pure, 18),
        mix("f16", GgmlType::F16, Pure, 1),
        mix("bf16", GgmlType::BF16, Pure, 32),
        mix("f32", GgmlType::F32, Pure, 0),
    ]
};

impl FromStr for Mix {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let lower = name.to_ascii_lowercase();
        let known = || Mix::names().collect::<Vec<_>>().join(", ");
        MIXES.iter().copied().find(|mix| mix.name == lower).ok_or_else(|| format!("there is {}", known()))
    }
}

impl Mix {
    pub fn names() -> impl Iterator<Item = &'static str> {
        MIXES.iter().map(|mix| mix.name)
    }

    pub fn name(self) -> &'static str {
        self.name
    }

    pub(super) fn file_type(self) -> u32 {
        self.file_type
    }

    /// The type of a matrix with rows of `columns`. `layer` counts from 0 and means nothing for the head and
    /// the table.
    pub(super) fn type_of(self, role: Role, layer: u32, layers: u32, columns: u64) -> GgmlType {
        use GgmlType::{Q4_K, Q5_K, Q6_K};
        // The first and last eighth of the layers, and every third between.
        let favoured = layer < layers / 8
            || layer >= 7 * layers / 8
            || layer.checked_sub(layers / 8).is_some_and(|from| from % 3 == 2);
        let wanted = match (self.style, role) {
            (Style::Pure, _) | (_, Role::Embedding | Role::Other) => self.base,
            (_, Role::Head) => Q6_K,
            (Style::Medium, Role::AttnV | Role::FfnDown) if favoured => Q6_K,
            // Models of 80 layers share each value among eight heads, which makes the extra bits cheap.
            (_, Role::AttnV) if layers == 80 && self.base == Q4_K => Q5_K,
            (Style::Small, Role::AttnV) if layer < 4 && self.base == Q4_K => Q5_K,
            (Style::Small, Role::FfnDown) if layer < layers / 8 && self.base == Q4_K => Q5_K,
            _ => self.base,
        };
        fitting(wanted, columns)
    }
}

/// What llama.cpp takes where the rows are not whole blocks.
fn fitting(ty: GgmlType, columns: u64) -> GgmlType {
    let fits = |ty: GgmlType| columns.is_multiple_of(ty.block_len() as u64);
    let fallback = match ty {
        GgmlType::Q4_K => GgmlType::Q5_0,
        GgmlType::Q5_K => GgmlType::Q5_1,
        GgmlType::Q6_K => GgmlType::Q8_0,
        _ => GgmlType::F16,
    };
    [ty, fallback].into_iter().find(|&ty| fits(ty)).unwrap_or(GgmlType::F16)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mix(name: &str) -> Mix {
        name.parse().unwrap()
    }

    /// The layers whose ffn_down is Q6_K in llama.cpp's Q4_K_M of models with 22 and 32 layers, by hand from
    /// its rule: i < n/8, i >= 7n/8, or (i - n/8) % 3 == 2.
    #[test]
    fn medium_mixtures_favour_the_layers_that_llama_cpp_favours() {
        let favoured = |layers| {
            (0..layers)
                .filter(|&l| mix("q4_k_m").type_of(Role::FfnDown, l, layers, 4096) == GgmlType::Q6_K)
                .collect::<Vec<_>>()
        };
        assert_eq!(favoured(22), [0, 1, 4, 7, 10, 13, 16, 19, 20, 21]);
        assert_eq!(favoured(32), [0, 1, 2, 3, 6, 9, 12, 15, 18, 21, 24, 27, 28, 29, 30, 31]);
    }

    #[test]
    fn the_head_of_a_mixture_is_q6_k_and_a_pure_file_is_pure() {
        let head = |name: &str| mix(name).type_of(Role::Head, 0, 32, 4096);
        assert_eq!(
            ["q4_k_m", "q5_k_s", "q4_k", "q8_0"].map(head).map(GgmlType::name),
            ["Q6_K", "Q6_K", "Q4_K", "Q8_0"]
        );
        assert_eq!(mix("Q4_K_M").type_of(Role::AttnV, 40, 80, 4096), GgmlType::Q5_K);
        assert_eq!(mix("q4_k_s").type_of(Role::AttnV, 3, 32, 4096), GgmlType::Q5_K);
        assert_eq!(mix("q4_k_s").type_of(Role::Embedding, 0, 32, 4096), GgmlType::Q4_K);
    }

    #[test]
    fn rows_that_are_not_whole_blocks_get_a_type_that_fits() {
        assert_eq!(mix("q4_k").type_of(Role::Other, 0, 24, 896), GgmlType::Q5_0);
        assert_eq!(mix("q6_k").type_of(Role::Other, 0, 24, 896), GgmlType::Q8_0);
        assert_eq!(mix("q4_0").type_of(Role::Other, 0, 24, 100), GgmlType::F16);
        assert_eq!(mix("q4_k").type_of(Role::Other, 0, 24, 100), GgmlType::F16);
    }
}
