//! Pieces of the page. Everything that comes from a file goes through [`text`].

use std::fmt::{Display, Write as _};

/// Text as HTML has it, in elements and in quoted attributes.
pub fn text(value: impl Display) -> String {
    let mut out = String::new();
    for character in value.to_string().chars() {
        match character {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            // Control characters are not allowed in HTML.
            other if other.is_control() && other != '\n' => out.push('\u{fffd}'),
            other => out.push(other),
        }
    }
    out
}

/// A table: its caption, heads of columns, and rows whose first cell is a head. Cells are HTML.
pub fn table(caption: &str, heads: &[String], rows: &[Vec<String>]) -> String {
    let mut out = String::from("<div class=\"wide\"><table>");
    if !caption.is_empty() {
        // Writing to a String cannot fail.
        let _ = write!(out, "<caption>{caption}</caption>");
    }
    if !heads.is_empty() {
        out.push_str("<thead><tr>");
        for head in heads {
            let _ = write!(out, "<th scope=\"col\">{head}</th>");
        }
        out.push_str("</tr></thead>");
    }
    out.push_str("<tbody>");
    for row in rows {
        out.push_str("<tr>");
        for (index, cell) in row.iter().enumerate() {
            if index == 0 {
                let _ = write!(out, "<th scope=\"row\">{cell}</th>");
            } else {
                let _ = write!(out, "<td>{cell}</td>");
            }
        }
        out.push_str("</tr>");
    }
    out.push_str("</tbody></table></div>\n");
    out
}

/// A table that is shown when asked for.
pub fn behind(summary: &str, table: &str) -> String {
    format!("<details><summary>{summary}</summary>{table}</details>\n")
}

/// A number with a blank between thousands.
pub fn number(value: f64) -> String {
    let rounded = format!("{:.0}", value.abs());
    let mut out = String::new();
    for (index, digit) in rounded.chars().enumerate() {
        if index > 0 && (rounded.len() - index).is_multiple_of(3) {
            // Narrow, and no place to break a line.
            out.push('\u{202f}');
        }
        out.push(digit);
    }
    if value < 0.0 && rounded != "0" {
        out.insert(0, '−');
    }
    out
}

/// A whole number.
#[allow(clippy::cast_precision_loss)] // shown rounded
pub fn count(value: u64) -> String {
    number(value as f64)
}

/// A ratio with three digits.
pub fn ratio(value: f64) -> String {
    if !value.is_finite() {
        "–".into()
    } else if value >= 100.0 {
        format!("{value:.0}×")
    } else if value >= 10.0 {
        format!("{value:.1}×")
    } else {
        format!("{value:.2}×")
    }
}

/// A day and a time of day, UTC, of seconds since 1970.
pub fn date(unix_s: u64) -> String {
    let (days, second) = (unix_s / 86_400, unix_s % 86_400);
    // Days since 0000-03-01, in eras of 400 years.
    let z = days + 719_468;
    let (era, day_of_era) = (z / 146_097, z % 146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 {
        shifted + 3
    } else {
        shifted - 9
    };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    format!(
        "{year}-{month:02}-{day:02} {:02}:{:02} UTC",
        second / 3600,
        second / 60 % 60
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_of_a_file_becomes_markup() {
        assert_eq!(
            text("<script>\"a\" & 'b'\u{7}</script>"),
            "&lt;script&gt;&quot;a&quot; &amp; &#39;b&#39;\u{fffd}&lt;/script&gt;"
        );
    }

    #[test]
    fn numbers_and_dates() {
        assert_eq!(number(1_234_567.4), "1\u{202f}234\u{202f}567");
        assert_eq!(number(999.6), "1\u{202f}000");
        assert_eq!(number(-0.2), "0");
        assert_eq!(ratio(0.456), "0.46×");
        assert_eq!(ratio(f64::INFINITY), "–");
        assert_eq!(date(0), "1970-01-01 00:00 UTC");
        assert_eq!(date(1_709_210_096), "2024-02-29 12:34 UTC");
        assert_eq!(date(1_796_083_200), "2026-12-01 00:00 UTC");
    }
}
