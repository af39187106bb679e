//! Normalizes vectors, and compares them.

/// Divides a vector by its norm: the p-norm for 1, 2 and above. 0 scales the largest number to 32760, and negative numbers change
/// nothing. These are the numbers of llama.cpp's `--embd-normalize`.
pub fn normalize(vector: &mut [f32], norm: i32) {
    let numbers = || vector.iter().map(|&x| f64::from(x.abs()));
    let size = match norm {
        ..0 => return,
        0 => numbers().fold(0.0, f64::max) / 32760.0,
        2 => numbers().map(|x| x * x).sum::<f64>().sqrt(),
        p => numbers().map(|x| x.powi(p)).sum::<f64>().powf(1.0 / f64::from(p)),
    };
    let by = if size > 0.0 { (1.0 / size) as f32 } else { 0.0 };
    vector.iter_mut().for_each(|x| *x *= by);
}

/// The cosine of the angle between two vectors; 1 of two that are zero, and 0 of one that is.
pub fn cosine(a: &[f32], b: &[f32]) -> f64 {
    let product =
        |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum::<f64>();
    let (aa, bb) = (product(a, a), product(b, b));
    match (aa == 0.0, bb == 0.0) {
        (true, true) => 1.0,
        (true, false) | (false, true) => 0.0,
        (false, false) => product(a, b) / (aa.sqrt() * bb.sqrt()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn norms_are_those_that_llama_cpp_numbers() {
        let of = |norm| {
            let mut vector = [3.0, -4.0];
            normalize(&mut vector, norm);
            vector
        };
        assert_eq!((of(-1), of(2)), ([3.0, -4.0], [0.6, -0.8]));
        assert_eq!(of(0), [24570.0, -32760.0]);
        let [a, b] = of(1);
        assert!((a - 3.0 / 7.0).abs() < 1e-7 && (b + 4.0 / 7.0).abs() < 1e-7);
        // The third root of 27 + 64.
        assert!((of(3)[0] - 3.0 / 4.497_941_4).abs() < 1e-6);
        let mut nothing = [0.0; 3];
        normalize(&mut nothing, 2);
        assert_eq!(nothing, [0.0; 3]);
    }

    #[test]
    fn cosines_of_right_angles_and_of_nothing() {
        assert_eq!(cosine(&[1.0, 0.0], &[0.0, 2.0]), 0.0);
        assert!((cosine(&[1.0, 1.0], &[2.0, 2.0]) - 1.0).abs() < 1e-12);
        assert_eq!((cosine(&[0.0], &[0.0]), cosine(&[0.0], &[1.0])), (1.0, 0.0));
    }
}
