//! Waiting for a device ends, whatever it does.

use std::time::{Duration, Instant};

use super::{
    super::{
        device::Gpu,
        formats::Format,
        harness::{Dispatch, Matrix, numbers, plain, scratch},
        pipelines::Pipelines,
        record::Recorder,
        variants::Arith,
    },
    gpu,
};

/// Has the device make one product so often, in a submission.
fn submit(gpu: &Gpu, pipelines: &mut Pipelines, (kernel, bound, groups): &Dispatch, times: usize) {
    let mut recorder = Recorder::new(gpu, pipelines, None);
    for _ in 0..times {
        recorder.dispatch(*kernel, bound, *groups).unwrap();
    }
    recorder.submit();
}

/// Instead of a hang there is a submission that takes longer than it may.
#[test]
fn a_device_that_does_not_answer_is_one_clear_line() {
    let Some(mut gpu) = gpu("a_device_that_does_not_answer_is_one_clear_line") else { return };
    let patient = gpu.patience;
    {
        gpu.patience = Duration::from_micros(50);
        let gpu = &gpu;
        let mut pipelines = Pipelines::new(gpu);
        let matrix = Matrix::empty(gpu, Format::Q4_0, 8192, 128).unwrap();
        let (x, y) = (matrix.scratch_for(gpu, Arith::Summed, 1).unwrap(), scratch(gpu, 4 * 8192).unwrap());
        let none = numbers(gpu, &[0.0]).unwrap();
        let product = matrix.multiply(gpu, &pipelines, &x, &y, &none, &plain(1, false)).unwrap();
        submit(gpu, &mut pipelines, &product[0], 50);
        for _ in 0..2 {
            let message = gpu.wait().unwrap_err().to_string();
            assert!(message.contains("did not end") && message.contains(&gpu.info.name), "{message}");
            assert!(message.contains("`device` cpu") && message.lines().count() == 1, "{message}");
        }
    }
    gpu.patience = patient;
    assert!(gpu.wait().is_err(), "it is given up for good");
}

/// Many submissions may take longer together than one may alone.
#[test]
fn a_device_that_is_busy_is_waited_for() {
    let Some(mut gpu) = gpu("a_device_that_is_busy_is_waited_for") else { return };
    let mut seconds = Vec::new();
    for patience in [gpu.patience, Duration::ZERO] {
        if patience.is_zero() {
            // Twenty times what the slowest took.
            gpu.patience = Duration::from_secs_f64(20.0 * seconds.iter().fold(1e-3f64, |m, &s| m.max(s)));
        }
        let gpu = &gpu;
        let mut pipelines = Pipelines::new(gpu);
        let matrix = Matrix::empty(gpu, Format::Q4_0, 1024, 128).unwrap();
        let (x, y) = (matrix.scratch_for(gpu, Arith::Summed, 1).unwrap(), scratch(gpu, 4 * 1024).unwrap());
        let none = numbers(gpu, &[0.0]).unwrap();
        let product = matrix.multiply(gpu, &pipelines, &x, &y, &none, &plain(1, false)).unwrap();
        if patience.is_zero() {
            (0..60).for_each(|_| submit(gpu, &mut pipelines, &product[0], 10));
            gpu.wait().unwrap();
        } else {
            for _ in 0..5 {
                let started = Instant::now();
                submit(gpu, &mut pipelines, &product[0], 10);
                gpu.wait().unwrap();
                seconds.push(started.elapsed().as_secs_f64());
            }
        }
    }
}
