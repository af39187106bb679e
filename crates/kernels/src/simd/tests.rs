use super::*;

/// Every interesting f32: zeros, subnormals, limits, and a spread of exponents and signs.
fn edge_values() -> Vec<f32> {
    let mut values = vec![0.0, -0.0, 0.5, -0.5, 1.5, -1.5, 2.5, -2.5, 1e-40, -1e-40, 1e-45, -1e-45];
    values.extend([f32::MIN_POSITIVE, f32::MAX, f32::MIN, f32::INFINITY, f32::NEG_INFINITY]);
    values.extend([
        2_147_483_600.0,
        2_147_483_648.0,
        -2_147_483_648.0,
        65504.0,
        65519.0,
        65520.0,
        6e-8,
        2e-8,
    ]);
    values.extend([2.980_232_2e-8, 2.980_232_6e-8, 88.72, 88.73, 89.5, -87.4, -103.9, -103.98, -104.5]);
    let mut state = 1u32;
    while values.len() < 512 {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let x = f32::from_bits(state.rotate_left(7));
        values.extend([x, (state as f32 / 2f32.powi(32) - 0.5) * 200.0].iter().filter(|x| !x.is_nan()));
    }
    values.truncate(512);
    values
}

/// Bits with every NaN alike.
fn bits(x: f32) -> u32 {
    if x.is_nan() { u32::MAX } else { x.to_bits() }
}

/// The results of every operation on every pair of neighbouring vectors, as bits.
struct EveryOperation<'a>(&'a [f32]);

impl Kernel for EveryOperation<'_> {
    type Out = Vec<(&'static str, usize, Vec<u32>)>;

    #[inline(always)]
    fn run<S: Simd>(self, s: S) -> Self::Out {
        let (vectors, _) = self.0.as_chunks::<LANES>();
        let mut out = Vec::new();
        for (n, x) in vectors.iter().enumerate() {
            let (a, b) = (s.load(x), s.load(&vectors[(n + 3) % vectors.len()]));
            let c = s.load(&vectors[(n + 7) % vectors.len()]);
            let mut halves = [F16([0; 2]); LANES];
            s.store_f16(a, &mut halves);
            for (name, v) in [
                ("add", s.add(a, b)),
                ("sub", s.sub(a, b)),
                ("mul", s.mul(a, b)),
                ("div", s.div(a, b)),
                ("fma", s.fma(a, b, c)),
                ("max", s.max(a, b)),
                ("min", s.min(a, b)),
                ("if_more", s.if_more(a, b, c, a)),
                ("abs", s.abs(a)),
                ("sqrt", s.sqrt(s.abs(a))),
                ("round", s.round_ties_even(a)),
                ("exp", s.exp(a)),
                ("f16", s.load_f16(&halves)),
                ("one f16", s.splat_f16(halves[1])),
                ("i32", s.from_i32(s.to_i32(a))),
                ("partial", s.load_partial(&x[..n % 17])),
                ("add_where", s.add_where(a, (n * 40503) as u16, 1.25)),
            ] {
                out.push((name, n, s.to_array(v).map(bits).to_vec()));
            }
            out.push(("store_f16", n, halves.iter().map(|h| u32::from(h.bits())).collect()));
            let i = s.to_bits(a);
            for (name, v) in [
                ("add_i32", s.add_i32(i, s.to_bits(b))),
                ("sub_i32", s.sub_i32(i, s.to_bits(b))),
                ("max_i32", s.max_i32(i, s.to_bits(b))),
                ("shl_i32", s.shl_i32(i, 5)),
                ("shr_i32", s.shr_i32(i, 5)),
                ("to_i32", s.to_i32(a)),
                ("splat_i32", s.splat_i32(n as i32)),
            ] {
                out.push((name, n, s.to_array(s.from_i32(v)).map(bits).to_vec()));
                out.push((name, n, vec![s.reduce_add_i32(v) as u32, s.reduce_max_i32(v) as u32]));
            }
            let mut bytes = [0; LANES];
            s.store_i8(s.to_i32(s.mul(a, s.splat(2.0))), &mut bytes);
            let signed: [i8; LANES] = std::array::from_fn(|i| (n * 37 + i * 21) as u8 as i8);
            out.push(("load_i8", n, s.to_array(s.load_i8(&signed)).map(bits).to_vec()));
            for high in [0, 1] {
                let levels = s.load_nibbles(&signed.map(|x| x as u8), high, &signed);
                out.push(("load_nibbles", n, s.to_array(levels).map(bits).to_vec()));
            }
            out.push(("store_i8", n, bytes.iter().map(|&b| b as u32).collect()));
            out.push(("reduce", n, vec![bits(s.reduce_add(a)), bits(s.reduce_max(a))]));
        }
        out
    }
}

#[test]
fn all_tiers_agree_on_every_operation() {
    let values = edge_values();
    let expected = Isa::Scalar.dispatch(EveryOperation(&values));
    for isa in Isa::available() {
        for (got, expected) in isa.dispatch(EveryOperation(&values)).iter().zip(&expected) {
            assert_eq!(got, expected, "{isa}");
        }
    }
}

/// A square of numbers, row j starting at 100 j.
struct Transposed;

impl Kernel for Transposed {
    type Out = Vec<[f32; LANES]>;

    #[inline(always)]
    fn run<S: Simd>(self, s: S) -> Self::Out {
        let mut rows = [s.splat(0.0); LANES];
        for (j, row) in rows.iter_mut().enumerate() {
            *row = s.load(&std::array::from_fn(|i| (100 * j + i) as f32));
        }
        s.transpose(rows).into_iter().map(|column| s.to_array(column)).collect()
    }
}

#[test]
fn rows_become_columns() {
    for isa in Isa::available() {
        for (i, column) in isa.dispatch(Transposed).iter().enumerate() {
            assert_eq!(*column, std::array::from_fn(|j| (100 * j + i) as f32), "{isa}");
        }
    }
}

/// All 65536 halves, as the tier reads them and as it writes them back.
struct Halves;

impl Kernel for Halves {
    type Out = (Vec<u32>, Vec<u16>, Vec<u32>);

    #[inline(always)]
    fn run<S: Simd>(self, s: S) -> Self::Out {
        let (mut floats, mut back, mut brain) = (Vec::new(), Vec::new(), Vec::new());
        for base in (0..=u16::MAX).step_by(LANES) {
            let raw: [[u8; 2]; LANES] = std::array::from_fn(|i| (base + i as u16).to_le_bytes());
            let v = s.load_f16(&raw.map(F16));
            let mut again = [F16([0; 2]); LANES];
            s.store_f16(v, &mut again);
            floats.extend(s.to_array(v).map(bits));
            back.extend(again.map(F16::bits));
            brain.extend(s.to_array(s.load_bf16(&raw)).map(bits));
        }
        (floats, back, brain)
    }
}

#[test]
fn halves_are_read_and_written_exactly() {
    for isa in Isa::available() {
        let (floats, back, brain) = isa.dispatch(Halves);
        for h in 0..=u16::MAX {
            let i = usize::from(h);
            // By the definition of the format, not by a library.
            let (exponent, fraction) = (i32::from(h >> 10 & 31), f64::from(h & 1023) / 1024.0);
            let magnitude = match exponent {
                0 => fraction * 2f64.powi(-14),
                31 if fraction == 0.0 => f64::INFINITY,
                31 => f64::NAN,
                e => (1.0 + fraction) * 2f64.powi(e - 15),
            };
            let value = if h >> 15 == 1 { -magnitude } else { magnitude } as f32;
            assert_eq!(floats[i], bits(value), "{isa} {h:#06x}");
            assert_eq!(brain[i], bits(f32::from_bits(u32::from(h) << 16)), "{isa} bf16 {h:#06x}");
            if !value.is_nan() {
                assert_eq!(back[i], h, "{isa}");
            }
        }
    }
}

struct Map<'a, F>(&'a [f32], F);

trait Apply {
    fn apply<S: Simd>(&self, s: S, x: S::F) -> S::F;
}

impl<A: Apply> Kernel for Map<'_, A> {
    type Out = Vec<f32>;

    #[inline(always)]
    fn run<S: Simd>(self, s: S) -> Vec<f32> {
        let (vectors, rest) = self.0.as_chunks::<LANES>();
        assert!(rest.is_empty());
        vectors.iter().flat_map(|x| s.to_array(self.1.apply(s, s.load(x)))).collect()
    }
}

struct Exp;

impl Apply for Exp {
    #[inline(always)]
    fn apply<S: Simd>(&self, s: S, x: S::F) -> S::F {
        s.exp(x)
    }
}

#[test]
fn exp_is_within_an_ulp() {
    let xs: Vec<f32> = (0..1 << 20).map(|i| -104.5 + i as f32 * (194.0 / (1 << 20) as f32)).collect();
    let mut worst = 0.0;
    for (x, got) in xs.iter().zip(Isa::detect().dispatch(Map(&xs, Exp))) {
        let exact = f64::from(*x).exp();
        if exact > f64::from(f32::MAX) * (1.0 + 2f64.powi(-25)) {
            assert_eq!(got, f32::INFINITY, "exp({x})");
            continue;
        }
        let ulp = 2f64.powi((exact.log2().floor() as i32).max(-126) - 23);
        let error = (f64::from(got) - exact).abs() / ulp;
        assert!(error <= 1.0, "exp({x}) = {got}, {error} ulp");
        worst = f64::max(worst, error);
    }
    assert!(worst > 0.4, "the comparison compares nothing");
}

#[test]
fn exp_has_the_right_limits() {
    let mut xs = [0.0; LANES];
    xs[..8].copy_from_slice(&[
        f32::NEG_INFINITY,
        f32::MIN,
        -1e4,
        -0.0,
        f32::INFINITY,
        f32::MAX,
        f32::NAN,
        1e-45,
    ]);
    for isa in Isa::available() {
        let got = isa.dispatch(Map(&xs, Exp));
        assert_eq!(got[..6], [0.0, 0.0, 0.0, 1.0, f32::INFINITY, f32::INFINITY], "{isa}");
        assert!(got[6].is_nan());
        assert_eq!(got[7], 1.0);
    }
}

#[test]
fn names_round_trip() {
    for isa in Isa::ALL {
        assert_eq!(isa.to_string().parse::<Isa>().unwrap(), isa);
    }
    assert!("sse9".parse::<Isa>().unwrap_err().to_string().contains("avx512"));
    assert_eq!(Isa::available()[0], Isa::Scalar);
    assert_eq!(Isa::available().last(), Some(&Isa::detect()));
}
