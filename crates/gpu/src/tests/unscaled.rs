//! Norms that leave their scale to products, in every form.

use super::{
    super::{
        formats::Format,
        pipelines::Pipelines,
        proof::unscaled::{Case, Way},
        variants::Arith,
    },
    TUNINGS, gpu,
};
use crate::quant::GgmlType;

#[test]
fn norms_in_products_have_the_bits_of_norms_by_themselves() {
    let test = "norms_in_products_have_the_bits_of_norms_by_themselves";
    let Some(mut gpu) = gpu(test) else { return };
    // Rows for 8, 16 and 32 lanes. The formats differ in what they load, so one of them has all numbers of columns.
    let kinds = [
        (GgmlType::Q4_0, 512, &[1, 3, 8][..]),
        (GgmlType::Q8_0, 2304, &[1]),
        (GgmlType::Q4_K, 4352, &[4]),
        (GgmlType::Q6_K, 512, &[2]),
    ];
    for tuning in TUNINGS {
        gpu.tuning = tuning.within(&gpu.limits);
        let (mut pipelines, mut pipelines_apart) = (Pipelines::new(&gpu), Pipelines::new(&gpu));
        for (ty, dim, numbers) in kinds {
            let format = Format::of(ty).unwrap();
            for arith in [Arith::Summed, Arith::Int8].into_iter().filter(|arith| arith.fits_gate_rows(format))
            {
                for &columns in numbers {
                    let case = Case { ty, dim, columns, arith };
                    gpu.tuning.norms_in_products = 0;
                    let apart = case.made(&gpu, &mut pipelines_apart, Way::Norm).unwrap();
                    gpu.tuning.norms_in_products = 8;
                    let made = case.made(&gpu, &mut pipelines, Way::Product).unwrap();
                    assert!(made.has_bits_of(&apart), "{case:?}");
                    let wide = (arith == Arith::Int8 && format.description().fits_wide_tiles)
                        .then_some(Way::Many { share: 0, wide: true });
                    let ways =
                        [Way::Norm, Way::Many { share: 0, wide: false }, Way::Many { share: 2, wide: false }];
                    for way in ways.into_iter().chain(wide) {
                        let other = case.made(&gpu, &mut pipelines, way).unwrap();
                        assert!(made.has_bits_of(&other), "{case:?} {way:?}");
                    }
                    if arith == Arith::Summed {
                        assert_eq!(case.wrong_output(&gpu, &made).unwrap(), None, "{case:?}");
                    }
                }
            }
        }
    }
}
