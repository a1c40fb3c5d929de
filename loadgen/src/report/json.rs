//! JSON with one member of an object a line, and arrays without line breaks: a
//! histogram is one line, and `diff` still shows what differs.

use serde::Serialize;
use serde_json::ser::{CompactFormatter, Formatter, PrettyFormatter, Serializer};
use std::io::{self, Write};

/// Writes `value` and a line break.
pub fn to_string(value: &impl Serialize) -> serde_json::Result<String> {
    let mut out = Vec::new();
    value.serialize(&mut Serializer::with_formatter(
        &mut out,
        Lines {
            pretty: PrettyFormatter::new(),
            arrays: 0,
        },
    ))?;
    out.push(b'\n');
    // Everything the serializer writes is UTF-8.
    Ok(String::from_utf8_lossy(&out).into_owned())
}

struct Lines<'a> {
    pretty: PrettyFormatter<'a>,
    /// Arrays around what is written now.
    arrays: usize,
}

impl Formatter for Lines<'_> {
    fn begin_array<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.arrays += 1;
        CompactFormatter.begin_array(out)
    }

    fn end_array<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.arrays -= 1;
        CompactFormatter.end_array(out)
    }

    fn begin_object<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
        match self.arrays {
            0 => self.pretty.begin_object(out),
            _ => CompactFormatter.begin_object(out),
        }
    }

    fn end_object<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
        match self.arrays {
            0 => self.pretty.end_object(out),
            _ => CompactFormatter.end_object(out),
        }
    }

    fn begin_object_key<W: ?Sized + Write>(&mut self, out: &mut W, first: bool) -> io::Result<()> {
        match self.arrays {
            0 => self.pretty.begin_object_key(out, first),
            _ => CompactFormatter.begin_object_key(out, first),
        }
    }

    fn begin_object_value<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
        match self.arrays {
            0 => self.pretty.begin_object_value(out),
            _ => CompactFormatter.begin_object_value(out),
        }
    }

    fn end_object_value<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
        match self.arrays {
            0 => self.pretty.end_object_value(out),
            _ => CompactFormatter.end_object_value(out),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    #[test]
    fn arrays_are_one_line() {
        let value = json!({"a": {"b": [[1, 2], [3, 4]]}, "c": [{"d": 1}, {"e": []}]});
        let text = super::to_string(&value).unwrap();
        assert_eq!(
            text,
            "{\n  \"a\": {\n    \"b\": [[1,2],[3,4]]\n  },\n  \"c\": [{\"d\":1},{\"e\":[]}]\n}\n"
        );
        assert_eq!(
            serde_json::from_str::<serde_json::Value>(&text).unwrap(),
            value
        );
    }
}
