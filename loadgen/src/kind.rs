//! The kinds of exchange that load is made of, and how they are mixed.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// One kind of exchange.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// message/send, one short answer.
    Unary,
    /// message/stream, many events and an end.
    Stream,
    /// message/send with a long request and a long answer.
    Bulk,
}

impl Kind {
    /// Every kind, in the order of [`Kind::index`].
    pub const ALL: [Self; 3] = [Self::Unary, Self::Stream, Self::Bulk];

    /// Its place in arrays by kind.
    pub fn index(self) -> usize {
        self as usize
    }

    /// As written on the command line and in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Unary => "unary",
            Self::Stream => "stream",
            Self::Bulk => "bulk",
        }
    }
}

/// Weights of the kinds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mix {
    /// By [`Kind::index`]; not all zero.
    weights: [u32; 3],
}

/// Highest weight.
const WEIGHT_MAX: u32 = 1_000_000;

impl Mix {
    /// What is mixed when nothing is said.
    pub const USUAL: Self = Self {
        weights: [80, 15, 5],
    };

    /// One kind alone.
    pub fn only(kind: Kind) -> Self {
        let mut weights = [0; 3];
        weights[kind.index()] = 1;
        Self { weights }
    }

    /// Kinds that occur.
    pub fn kinds(self) -> impl Iterator<Item = Kind> {
        Kind::ALL
            .into_iter()
            .filter(move |kind| self.weights[kind.index()] > 0)
    }
}

impl FromStr for Mix {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let form = || "a mix is written unary=80,stream=15,bulk=5".to_owned();
        let mut weights = [None; 3];
        for part in text.split(',') {
            let (name, weight) = part.split_once('=').ok_or_else(form)?;
            let kind = Kind::ALL
                .into_iter()
                .find(|kind| kind.name() == name)
                .ok_or_else(|| format!("{name:?} is none of unary, stream, bulk"))?;
            let weight: u32 = weight.parse().map_err(|_| form())?;
            if weight > WEIGHT_MAX {
                return Err(format!("a weight is at most {WEIGHT_MAX}"));
            }
            if weights[kind.index()].replace(weight).is_some() {
                return Err(format!("{name} is named twice"));
            }
        }
        let weights = weights.map(Option::unwrap_or_default);
        if weights.iter().all(|&weight| weight == 0) {
            return Err("a mix needs a weight above 0".into());
        }
        Ok(Self { weights })
    }
}

impl fmt::Display for Mix {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts: Vec<String> = self
            .kinds()
            .map(|kind| format!("{}={}", kind.name(), self.weights[kind.index()]))
            .collect();
        formatter.write_str(&parts.join(","))
    }
}

/// Gives the kinds one after the other, each as often as its weight says and as evenly spread as can be.
#[derive(Debug, Clone)]
pub struct Sequence {
    mix: Mix,
    due: [i64; 3],
}

impl Sequence {
    /// From the beginning.
    pub fn new(mix: Mix) -> Self {
        Self { mix, due: [0; 3] }
    }

    /// The kind of the next exchange.
    pub fn next_kind(&mut self) -> Kind {
        let (mut most, mut sum) = (Kind::Unary, 0);
        for kind in Kind::ALL {
            let weight = i64::from(self.mix.weights[kind.index()]);
            self.due[kind.index()] += weight;
            sum += weight;
            if self.due[kind.index()] > self.due[most.index()] {
                most = kind;
            }
        }
        self.due[most.index()] -= sum;
        most
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_often_as_the_weights_say() {
        let mix: Mix = "unary=80,stream=15,bulk=5".parse().unwrap();
        let mut sequence = Sequence::new(mix);
        let drawn: Vec<Kind> = (0..200).map(|_| sequence.next_kind()).collect();
        let count = |kind| drawn.iter().filter(|&&drawn| drawn == kind).count();
        assert_eq!(Kind::ALL.map(count), [160, 30, 10]);
        // Spread, not in runs: no twenty in a row without a stream.
        assert!(
            drawn
                .windows(20)
                .all(|window| window.contains(&Kind::Stream))
        );
        assert_eq!(mix.to_string(), "unary=80,stream=15,bulk=5");
    }

    #[test]
    fn one_kind_alone() {
        for kind in Kind::ALL {
            let mut sequence = Sequence::new(Mix::only(kind));
            assert!((0..10).all(|_| sequence.next_kind() == kind));
            assert_eq!(Mix::only(kind).kinds().collect::<Vec<_>>(), [kind]);
        }
    }

    #[test]
    fn what_is_no_mix() {
        for wrong in [
            "",
            "unary",
            "unary=x",
            "unary=0",
            "talk=1",
            "unary=1,unary=2",
            "bulk=-1",
            "stream=9999999",
        ] {
            assert!(wrong.parse::<Mix>().is_err(), "{wrong}");
        }
    }
}
