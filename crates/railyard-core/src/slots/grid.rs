//! Windows: arithmetic on time alone.

use jiff::Timestamp;

/// Bits of a [`Dice`].
const DICE_BITS: u32 = 24;
const MICROS: i64 = 1_000_000;

/// A window of a grid: the number of windows between the epoch and it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Window(pub i64);

impl Window {
    /// The one behind it.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}

/// A place within a window, drawn by the caller: uniform in 0 to 2^24 − 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Dice(u32);

impl Dice {
    /// From any random number: its upper 24 bits.
    #[must_use]
    pub fn of(random: u32) -> Self {
        Self(random >> (u32::BITS - DICE_BITS))
    }

    /// Its number.
    #[must_use]
    pub fn number(self) -> i64 {
        i64::from(self.0)
    }
}

/// Windows of one size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grid {
    size_us: i64,
}

impl Grid {
    /// Windows of so many seconds; zero is one.
    #[must_use]
    pub fn of_seconds(size_s: u32) -> Self {
        Self { size_us: i64::from(size_s.max(1)) * MICROS }
    }

    /// The window that holds this moment: `T − T mod size`, in windows.
    #[must_use]
    pub fn window_of(self, at: Timestamp) -> Window {
        Window(at.as_microsecond().div_euclid(self.size_us))
    }

    /// When it begins.
    #[must_use]
    pub fn start(self, window: Window) -> Timestamp {
        time(window.0.saturating_mul(self.size_us))
    }

    /// When it has ended; the next one begins then.
    #[must_use]
    pub fn end(self, window: Window) -> Timestamp {
        self.start(window.next())
    }

    /// How many of `max` this window takes for who asks for `at`: of a window that has begun by then, what is left of it
    /// has its share, rounded down.
    #[must_use]
    pub fn capacity(self, max: u32, window: Window, at: Timestamp) -> u32 {
        if self.window_of(at) != window {
            return max;
        }
        let left = i128::from(self.end(window).as_microsecond() - at.as_microsecond());
        u32::try_from(i128::from(max) * left / i128::from(self.size_us)).unwrap_or(max)
    }

    /// When an event of this window starts: anywhere in it, and not before `at` where `at` lies in it.
    #[must_use]
    pub fn scheduled(self, window: Window, at: Timestamp, dice: Dice) -> Timestamp {
        let begin = self.start(window).as_microsecond();
        let from = if self.window_of(at) == window { at.as_microsecond() } else { begin };
        let span = begin + self.size_us - from;
        // 86,400 s in microseconds times 2^24 has room in 63 bits.
        time(from + ((span * dice.number()) >> DICE_BITS))
    }

    /// The windows that lie wholly within a stretch of time, the end exclusive; none if there is no such window.
    #[must_use]
    pub fn within(self, from: Timestamp, until: Timestamp) -> Option<(Window, Window)> {
        let first = from.as_microsecond().div_euclid(self.size_us)
            + i64::from(from.as_microsecond().rem_euclid(self.size_us) != 0);
        let end = until.as_microsecond().div_euclid(self.size_us);
        (first < end).then_some((Window(first), Window(end)))
    }
}

/// Open windows in order, from stretches of them.
#[derive(Clone, Debug)]
pub struct Openings {
    /// First and end, ascending. None: all are open.
    spans: Option<Vec<(Window, Window)>>,
}

impl Openings {
    /// From these stretches; without any list all windows are open.
    #[must_use]
    pub fn new(spans: Option<Vec<(Window, Window)>>) -> Self {
        Self { spans }
    }

    /// The first open one that is not before `window`; none if these stretches do not reach so far.
    #[must_use]
    pub fn at_or_after(&self, window: Window) -> Option<Window> {
        let Some(spans) = &self.spans else { return Some(window) };
        let behind = spans.partition_point(|(_, end)| *end <= window);
        spans.get(behind).map(|(first, _)| window.max(*first))
    }

    /// How many windows are open from this open one on.
    #[must_use]
    pub fn open_from(&self, window: Window) -> u64 {
        let Some(spans) = &self.spans else { return u64::MAX };
        let behind = spans.partition_point(|(_, end)| *end <= window);
        spans.get(behind).map_or(0, |(_, end)| end.0.abs_diff(window.0))
    }

    /// The stretches.
    #[must_use]
    pub fn spans(&self) -> Option<&[(Window, Window)]> {
        self.spans.as_deref()
    }
}

/// Times beyond the years 1 to 9999 end there.
fn time(micros: i64) -> Timestamp {
    Timestamp::from_microsecond(micros).unwrap_or(if micros < 0 { Timestamp::MIN } else { Timestamp::MAX })
}
