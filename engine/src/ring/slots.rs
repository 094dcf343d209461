//! A table whose keys are never used twice: what completes late finds nothing instead of a stranger.

/// Values by key. A key is the place in the low half and how often the place was used in the high
/// half, so a place serves four thousand million values before it would have to be retired.
#[derive(Debug)]
pub(super) struct Slots<T> {
    places: Vec<Place<T>>,
    free: Vec<u32>,
    len: usize,
}

#[derive(Debug)]
struct Place<T> {
    generation: u32,
    value: Option<T>,
}

impl<T> Slots<T> {
    pub(super) fn new() -> Self {
        Self { places: Vec::new(), free: Vec::new(), len: 0 }
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn insert(&mut self, value: T) -> u64 {
        self.len += 1;
        if let Some(index) = self.free.pop() {
            let place = &mut self.places[index as usize];
            place.value = Some(value);
            return key_of(index, place.generation);
        }
        let index = u32::try_from(self.places.len()).expect("fewer than 2^32 slots fit in memory");
        self.places.push(Place { generation: 1, value: Some(value) });
        key_of(index, 1)
    }

    pub(super) fn get_mut(&mut self, key: u64) -> Option<&mut T> {
        let (index, generation) = parts_of(key);
        let place = self.places.get_mut(index)?;
        if place.generation == generation { place.value.as_mut() } else { None }
    }

    pub(super) fn remove(&mut self, key: u64) -> Option<T> {
        let (index, generation) = parts_of(key);
        let place = self.places.get_mut(index)?;
        if place.generation != generation {
            return None;
        }
        let value = place.value.take()?;
        self.len -= 1;
        // A place whose generations are used up is left empty for good.
        if place.generation < u32::MAX {
            place.generation += 1;
            self.free.push(index as u32);
        }
        Some(value)
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.places.iter_mut().filter_map(|place| place.value.as_mut())
    }
}

fn key_of(index: u32, generation: u32) -> u64 {
    u64::from(generation) << 32 | u64::from(index)
}

fn parts_of(key: u64) -> (usize, u32) {
    ((key & 0xffff_ffff) as usize, (key >> 32) as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_of_a_removed_value_finds_nothing_even_when_its_place_is_used_again() {
        let mut slots = Slots::new();
        let first = slots.insert("first");
        assert_eq!(slots.remove(first), Some("first"));
        let second = slots.insert("second");
        assert_eq!(first & 0xffff_ffff, second & 0xffff_ffff);
        assert_ne!(first, second);
        assert_eq!(slots.get_mut(first), None);
        assert_eq!(slots.remove(first), None);
        assert_eq!(slots.get_mut(second), Some(&mut "second"));
        assert_eq!(slots.len(), 1);
    }
}
