//! Queries, keys and values that are stored as they are multiplied, in every form.

use super::{
    super::{
        formats::Format,
        pipelines::{Bindings, Pipelines},
        proof::stored::Case,
        stored::Stored,
        variants::Arith,
    },
    TUNINGS, gpu,
};
use crate::{kv_type::KvType, quant::GgmlType};

#[test]
fn what_products_store_has_the_bits_of_what_is_stored_after_them() {
    let test = "what_products_store_has_the_bits_of_what_is_stored_after_them";
    let Some(mut gpu) = gpu(test) else { return };
    if !Bindings::STORE_ROWS.fits(&gpu.limits) {
        eprintln!("NOT RUN: {test}: the device binds too few buffers");
        return;
    }
    use KvType::{F16, F32};
    let kinds = [(GgmlType::Q8_0, (F16, F16)), (GgmlType::Q4_K, (F32, F16)), (GgmlType::F16, (F16, F32))];
    for tuning in TUNINGS {
        gpu.tuning = tuning.within(&gpu.limits);
        let mut pipelines = Pipelines::new(&gpu);
        for columns in [1, 3, 8] {
            for (ty, (keys, values)) in kinds {
                for arith in [Arith::Summed, Arith::Int8] {
                    let arith = arith.of(Format::of(ty).unwrap());
                    let case = Case { ty, columns, stored: Stored { keys, values }, arith };
                    assert!(case.agrees(&gpu, &mut pipelines).unwrap(), "{case:?}");
                }
            }
        }
    }
}
