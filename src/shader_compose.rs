//! A small text preprocessor for the shader templates; `build.rs` runs it.
//!
//! | form | meaning |
//! |---|---|
//! | `#import file A=x B=y` | the text of `shared/file.wgsl`, expanded with these variables added |
//! | `#for i in a..b` … `#end` | the lines once for each value |
//! | `#if e` … `#else` … `#end` | the lines if the expression is not zero |
//! | `#let x = e` | binds a variable for the rest of the enclosing block |
//! | `${e}` | the value of an expression |
//! | `#{i in a..b;sep;text}` | text once for each value, joined |
//!
//! Expressions have integers, variables, `list[e]`, `+ - * / % << >> & == != < > <= >=` and
//! parentheses. A variable may also be a word (a name to paste), usable alone or in `==`.

use std::collections::BTreeMap;

/// A variable of a template.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    Int(i64),
    Word(String),
    List(Vec<i64>),
}

impl From<i64> for Value {
    fn from(v: i64) -> Self {
        Self::Int(v)
    }
}
impl From<&str> for Value {
    fn from(v: &str) -> Self {
        v.parse::<i64>()
            .map_or_else(|_| Self::Word(v.to_string()), Self::Int)
    }
}
impl From<Vec<i64>> for Value {
    fn from(v: Vec<i64>) -> Self {
        Self::List(v)
    }
}

/// Variables by name. A `BTreeMap`, so that the output never depends on a hash seed.
pub type Vars = BTreeMap<String, Value>;

/// Expands a template. `load` gives the text of an imported file.
///
/// # Errors
/// A message naming the line, for unknown variables, malformed directives or missing files.
pub fn expand(
    text: &str,
    vars: &Vars,
    load: &dyn Fn(&str) -> Option<String>,
) -> Result<String, String> {
    let lines: Vec<&str> = text.lines().collect();
    let mut out = String::new();
    block(&lines, &mut vars.clone(), load, &mut out)?;
    Ok(out)
}

fn block(
    lines: &[&str],
    vars: &mut Vars,
    load: &dyn Fn(&str) -> Option<String>,
    out: &mut String,
) -> Result<(), String> {
    let mut i = 0;
    while i < lines.len() {
        let line = lines[i];
        let at = |e: String| format!("`{}`: {e}", line.trim());
        let trimmed = line.trim_start();
        if let Some(rest) = trimmed.strip_prefix("#import ") {
            let rest = inline(rest, vars).map_err(at)?;
            let mut words = rest.split_whitespace();
            let name = words.next().ok_or_else(|| at("no file".into()))?;
            let mut inner = vars.clone();
            for word in words {
                let (k, v) = word
                    .split_once('=')
                    .ok_or_else(|| at(format!("`{word}` is not NAME=VALUE")))?;
                // A bare name of a variable passes that variable on.
                let v = vars.get(v).cloned().unwrap_or_else(|| Value::from(v));
                inner.insert(k.to_string(), v);
            }
            let text = load(name).ok_or_else(|| at("no such file".into()))?;
            let lines: Vec<&str> = text.lines().collect();
            block(&lines, &mut inner, load, out).map_err(|e| format!("in {name}: {e}"))?;
            i += 1;
        } else if let Some(rest) = trimmed.strip_prefix("#let ") {
            let (name, e) = rest
                .split_once('=')
                .ok_or_else(|| at("no `=`".to_string()))?;
            let v = eval(e, vars).map_err(at)?;
            vars.insert(name.trim().to_string(), Value::Int(v));
            i += 1;
        } else if let Some(rest) = trimmed.strip_prefix("#for ") {
            let (body, _, next) = body_of(lines, i)?;
            let (name, range) = rest
                .split_once(" in ")
                .ok_or_else(|| at("no ` in `".into()))?;
            let (a, b) = range_of(range, vars).map_err(at)?;
            for v in a..b {
                let mut inner = vars.clone();
                inner.insert(name.trim().to_string(), Value::Int(v));
                block(body, &mut inner, load, out)?;
            }
            i = next;
        } else if let Some(rest) = trimmed.strip_prefix("#if ") {
            let (yes, no, next) = body_of(lines, i)?;
            let chosen = if eval(rest, vars).map_err(at)? != 0 {
                yes
            } else {
                no
            };
            block(chosen, &mut vars.clone(), load, out)?;
            i = next;
        } else if trimmed.starts_with('#') && !trimmed.starts_with("#{") {
            return Err(at("unknown directive".into()));
        } else {
            out.push_str(&inline(line, vars).map_err(at)?);
            out.push('\n');
            i += 1;
        }
    }
    Ok(())
}

/// The lines between a `#for`/`#if` at `start` and its `#else`/`#end`, and the index after it.
type Body<'a, 'b> = (&'a [&'b str], &'a [&'b str], usize);

fn body_of<'a, 'b>(lines: &'a [&'b str], start: usize) -> Result<Body<'a, 'b>, String> {
    let (mut depth, mut split) = (0, None);
    for (i, line) in lines.iter().enumerate().skip(start) {
        let t = line.trim_start();
        if t.starts_with("#for ") || t.starts_with("#if ") {
            depth += 1;
        } else if t.starts_with("#else") && depth == 1 {
            split = Some(i);
        } else if t.starts_with("#end") {
            depth -= 1;
            if depth == 0 {
                let mid = split.unwrap_or(i);
                let no = if mid < i { &lines[mid + 1..i] } else { &[] };
                return Ok((&lines[start + 1..mid], no, i + 1));
            }
        }
    }
    Err(format!("`{}` has no #end", lines[start].trim()))
}

fn range_of(text: &str, vars: &Vars) -> Result<(i64, i64), String> {
    let (a, b) = text
        .split_once("..")
        .ok_or_else(|| format!("`{text}` is not a range"))?;
    Ok((eval(a, vars)?, eval(b, vars)?))
}

/// Expands `${…}` and `#{…}` in one line.
fn inline(line: &str, vars: &Vars) -> Result<String, String> {
    let mut out = String::new();
    let mut rest = line;
    loop {
        let next = [rest.find("${"), rest.find("#{")]
            .into_iter()
            .flatten()
            .min();
        let Some(at) = next else {
            out.push_str(rest);
            return Ok(out);
        };
        out.push_str(&rest[..at]);
        let body_start = at + 2;
        let mut depth = 1;
        let end = rest[body_start..]
            .char_indices()
            .find(|(_, c)| {
                depth += i32::from(*c == '{') - i32::from(*c == '}');
                depth == 0
            })
            .ok_or_else(|| format!("unclosed `{}`", &rest[at..at + 2]))?
            .0
            + body_start;
        let body = &rest[body_start..end];
        if rest[at..].starts_with("${") {
            match vars.get(body.trim()) {
                Some(Value::Word(w)) => out.push_str(w),
                _ => out.push_str(&eval(body, vars)?.to_string()),
            }
        } else {
            let mut parts = body.splitn(3, ';');
            let (head, sep, text) = match (parts.next(), parts.next(), parts.next()) {
                (Some(h), Some(s), Some(t)) => (h, s, t),
                _ => return Err(format!("`#{{{body}}}` is not `i in a..b;sep;text`")),
            };
            let (name, range) = head
                .split_once(" in ")
                .ok_or_else(|| format!("`{head}` has no ` in `"))?;
            let (a, b) = range_of(range, vars)?;
            for v in a..b {
                let mut inner = vars.clone();
                inner.insert(name.trim().to_string(), Value::Int(v));
                if v > a {
                    out.push_str(sep);
                }
                out.push_str(&inline(text, &inner)?);
            }
        }
        rest = &rest[end + 1..];
    }
}

/// Value of an expression.
fn eval(text: &str, vars: &Vars) -> Result<i64, String> {
    let mut p = Parser {
        text: text.as_bytes(),
        at: 0,
        vars,
    };
    let v = p.binary(0)?;
    p.space();
    if p.at != text.len() {
        return Err(format!("trailing text in `{text}`"));
    }
    match v {
        Value::Int(v) => Ok(v),
        v => Err(format!("`{text}` is {v:?}, not a number")),
    }
}

/// Binary operators by rising precedence.
const LEVELS: [&[&str]; 5] = [
    &["==", "!=", "<=", ">=", "<", ">"],
    &["&"],
    &["<<", ">>"],
    &["+", "-"],
    &["*", "/", "%"],
];

struct Parser<'a> {
    text: &'a [u8],
    at: usize,
    vars: &'a Vars,
}

impl Parser<'_> {
    fn space(&mut self) {
        while self.text.get(self.at).is_some_and(u8::is_ascii_whitespace) {
            self.at += 1;
        }
    }
    fn operator(&mut self, level: usize) -> Option<&'static str> {
        self.space();
        let rest = &self.text[self.at..];
        // `<` must not match the start of `<<`.
        let shift = rest.starts_with(b"<<") || rest.starts_with(b">>");
        LEVELS[level]
            .iter()
            .find(|op| rest.starts_with(op.as_bytes()) && !(shift && op.len() == 1))
            .copied()
    }
    fn binary(&mut self, level: usize) -> Result<Value, String> {
        if level == LEVELS.len() {
            return self.atom();
        }
        let mut left = self.binary(level + 1)?;
        while let Some(op) = self.operator(level) {
            self.at += op.len();
            let right = self.binary(level + 1)?;
            left = Value::Int(match (op, &left, &right) {
                ("==", a, b) => i64::from(a == b),
                ("!=", a, b) => i64::from(a != b),
                (op, Value::Int(a), Value::Int(b)) => match op {
                    "<" => i64::from(a < b),
                    ">" => i64::from(a > b),
                    "<=" => i64::from(a <= b),
                    ">=" => i64::from(a >= b),
                    "&" => a & b,
                    "<<" => a << b,
                    ">>" => a >> b,
                    "+" => a + b,
                    "-" => a - b,
                    "*" => a * b,
                    "/" | "%" if *b == 0 => return Err("division by zero".into()),
                    "/" => a / b,
                    _ => a % b,
                },
                _ => return Err(format!("`{op}` of {left:?} and {right:?}")),
            });
        }
        Ok(left)
    }
    fn atom(&mut self) -> Result<Value, String> {
        self.space();
        let start = self.at;
        match self.text.get(self.at) {
            Some(b'(') => {
                self.at += 1;
                let v = self.binary(0)?;
                self.space();
                if self.text.get(self.at) != Some(&b')') {
                    return Err("missing `)`".into());
                }
                self.at += 1;
                Ok(v)
            }
            Some(c) if c.is_ascii_alphanumeric() || *c == b'_' => {
                while self
                    .text
                    .get(self.at)
                    .is_some_and(|c| c.is_ascii_alphanumeric() || *c == b'_')
                {
                    self.at += 1;
                }
                let word = std::str::from_utf8(&self.text[start..self.at]).expect("ASCII");
                if c.is_ascii_digit() {
                    return word
                        .parse()
                        .map(Value::Int)
                        .map_err(|e| format!("`{word}`: {e}"));
                }
                let value = self.vars.get(word).cloned();
                if self.text.get(self.at) == Some(&b'[') {
                    self.at += 1;
                    let index = self.binary(0)?;
                    if self.text.get(self.at) != Some(&b']') {
                        return Err("missing `]`".into());
                    }
                    self.at += 1;
                    return match (value, index) {
                        (Some(Value::List(l)), Value::Int(i)) => l
                            .get(i as usize)
                            .map(|v| Value::Int(*v))
                            .ok_or_else(|| format!("`{word}[{i}]`: {} elements", l.len())),
                        _ => Err(format!("`{word}` is no list")),
                    };
                }
                // An unknown name stands for itself, so that words can be compared with it.
                Ok(value.unwrap_or_else(|| Value::Word(word.to_string())))
            }
            _ => Err("an expression was expected".into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(text: &str) -> Result<String, String> {
        let mut vars = Vars::new();
        vars.insert("N".into(), 3.into());
        vars.insert("F".into(), "fq".into());
        vars.insert("p".into(), vec![7, 8, 9].into());
        expand(text, &vars, &|name| {
            (name == "inc").then(|| "fn ${F}_${X}() {}".to_string())
        })
    }

    #[test]
    fn directives() {
        assert_eq!(
            run("#for i in 0..N\nlet t${i} = ${p[i] + 1 << 1}u;\n#end").unwrap(),
            "let t0 = 16u;\nlet t1 = 18u;\nlet t2 = 20u;\n"
        );
        assert_eq!(
            run("f(#{i in 1..N;, ;a.l${i}})").unwrap(),
            "f(a.l1, a.l2)\n"
        );
        assert_eq!(run("#if F == fq\nyes\n#else\nno\n#end").unwrap(), "yes\n");
        assert_eq!(run("#if F == fr\nyes\n#else\nno\n#end").unwrap(), "no\n");
        assert_eq!(run("#import inc X=mul").unwrap(), "fn fq_mul() {}\n");
        assert_eq!(run("#let k = N * 2\n${k}").unwrap(), "6\n");
    }

    #[test]
    fn mistakes_are_errors() {
        for bad in [
            "${M}",
            "${p[3]}",
            "#for i in 0..N",
            "#frob",
            "#import nothing",
            "${1 / 0}",
            "#{i in 0..2;x}",
            "${",
        ] {
            assert!(run(bad).is_err(), "{bad}");
        }
    }
}
