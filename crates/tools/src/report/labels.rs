//! Where labels go so that none lies on another.

/// Places for labels in a column: each as near to where it belongs as the others allow, in the same order, `gap` apart and
/// between the ends if there is room.
pub fn spread(wanted: &[f64], gap: f64, (low, high): (f64, f64)) -> Vec<f64> {
    let mut order: Vec<usize> = (0..wanted.len()).collect();
    order.sort_by(|&a, &b| wanted[a].total_cmp(&wanted[b]));
    // Labels that push each other are a block, which stands around the middle of what its members want.
    let mut blocks: Vec<(f64, usize)> = Vec::new();
    let first = |&(middle, n): &(f64, usize)| {
        let half = gap * (n - 1) as f64 / 2.0;
        (middle - half).min(high - 2.0 * half).max(low)
    };
    for &i in &order {
        blocks.push((wanted[i], 1));
        while let [.., before, last] = &blocks[..] {
            let end = first(before) + gap * before.1 as f64;
            if end <= first(last) {
                break;
            }
            let n = before.1 + last.1;
            let middle = (before.0 * before.1 as f64 + last.0 * last.1 as f64) / n as f64;
            blocks.truncate(blocks.len() - 2);
            blocks.push((middle, n));
        }
    }
    let places = blocks.iter().flat_map(|block| (0..block.1).map(move |i| first(block) + gap * i as f64));
    let mut placed = vec![0.0; wanted.len()];
    std::iter::zip(order, places).for_each(|(i, place)| placed[i] = place);
    placed
}

/// A rectangle: left, top, right, bottom.
pub type Area = (f64, f64, f64, f64);

/// Areas that are taken already.
#[derive(Default)]
pub struct Taken(Vec<Area>);

impl Taken {
    pub fn take(&mut self, area: Area) {
        self.0.push(area);
    }

    /// The first of the areas that is free, which is taken then.
    pub fn first_free(&mut self, areas: impl IntoIterator<Item = Area>) -> Option<Area> {
        let meet = |a: &Area, b: &Area| a.0 < b.2 && b.0 < a.2 && a.1 < b.3 && b.1 < a.3;
        let free = areas.into_iter().find(|area| !self.0.iter().any(|taken| meet(taken, area)))?;
        self.0.push(free);
        Some(free)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_stay_where_there_is_room_and_share_it_where_not() {
        assert_eq!(spread(&[10.0, 50.0], 14.0, (0.0, 100.0)), [10.0, 50.0]);
        assert_eq!(spread(&[50.0, 50.0], 14.0, (0.0, 100.0)), [43.0, 57.0]);
        assert_eq!(spread(&[50.0, 60.0], 14.0, (0.0, 100.0)), [48.0, 62.0]);
        // In their own order, whatever order they come in; the ends hold.
        assert_eq!(spread(&[99.0, 98.0, 97.0], 10.0, (0.0, 100.0)), [100.0, 90.0, 80.0]);
        assert_eq!(spread(&[1.0, 0.0], 10.0, (0.0, 100.0)), [10.0, 0.0]);
        assert!(spread(&[], 10.0, (0.0, 1.0)).is_empty());
        let many = spread(&[5.0; 30], 10.0, (0.0, 100.0));
        assert!(many.windows(2).all(|w| w[1] - w[0] == 10.0) && many[0] == 0.0, "{many:?}");
    }

    #[test]
    fn an_area_is_taken_once() {
        let mut taken = Taken::default();
        assert!(taken.first_free([(0.0, 0.0, 2.0, 2.0)]).is_some());
        assert_eq!(
            taken.first_free([(1.0, 1.0, 3.0, 3.0), (2.0, 0.0, 3.0, 1.0)]),
            Some((2.0, 0.0, 3.0, 1.0))
        );
    }
}
