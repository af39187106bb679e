//! llama.cpp's GBNF, translated to llguidance's Lark.
//!
//! GBNF has no lexer: a rule may begin in the middle of what another rule could match as a word. Lark's terminals match as much as
//! they can. So a grammar without recursive rules becomes a single terminal, and in any other grammar each character is a
//! terminal by itself.

use std::collections::HashMap;

const DEEPEST: usize = 100;
/// As in llama.cpp.
const MOST_REPETITIONS: u32 = 2000;
/// The most repetitions of repetitions, as in `a**`, which nest like parentheses.
const MOST_STACKED: usize = 4;

/// An error says in which line.
pub(super) fn to_lark(text: &str) -> Result<String, String> {
    let mut parser =
        Parser { chars: text.chars().collect(), at: 0, rules: Vec::new(), names: HashMap::new() };
    parser.grammar().map_err(|what| format!("line {}: {what}", line(&parser.chars, parser.at)))?;
    let Parser { chars, rules, names, .. } = parser;
    let root = *names.get("root").ok_or("there is no rule `root`, with which a text begins")?;
    let mut bodies = Vec::new();
    for rule in &rules {
        let missing = || format!("line {}: there is no rule `{}`", line(&chars, rule.at), rule.name);
        bodies.push(rule.body.as_ref().ok_or_else(missing)?);
    }
    let is_flat = !is_recursive(&bodies, root) && !bodies.iter().any(|body| body.has_token());
    let writer = Writer { letter: if is_flat { 'T' } else { 'r' }, is_flat };
    let mut lark = format!("start: {}{root}\n", writer.letter);
    for (i, body) in reachable(&bodies, root) {
        lark.push_str(&format!("{}{i}: {}\n", writer.letter, writer.text(body)));
    }
    Ok(lark)
}

enum Node {
    Text(String),
    Class {
        is_negated: bool,
        ranges: Vec<(char, char)>,
    },
    Any,
    Rule(usize),
    /// A token by its id or its text.
    Token(String),
    All(Vec<Node>),
    OneOf(Vec<Node>),
    Repeated(Box<Node>, u32, Option<u32>),
}

impl Node {
    fn children(&self) -> &[Node] {
        match self {
            Node::All(nodes) | Node::OneOf(nodes) => nodes,
            Node::Repeated(node, ..) => std::slice::from_ref(node),
            Node::Text(_) | Node::Class { .. } | Node::Any | Node::Rule(_) | Node::Token(_) => &[],
        }
    }

    fn has_token(&self) -> bool {
        matches!(self, Node::Token(_)) || self.children().iter().any(Node::has_token)
    }

    fn rules(&self, found: &mut Vec<usize>) {
        if let Node::Rule(rule) = self {
            found.push(*rule);
        }
        self.children().iter().for_each(|child| child.rules(found));
    }
}

/// Whether a rule that `root` leads to leads to itself.
fn is_recursive(bodies: &[&Node], root: usize) -> bool {
    let mut uses = vec![0; bodies.len()];
    let reached = reachable(bodies, root);
    let named = |body: &Node| {
        let mut found = Vec::new();
        body.rules(&mut found);
        found
    };
    reached.iter().for_each(|(_, body)| named(body).into_iter().for_each(|rule| uses[rule] += 1));
    // Rules that no other one uses any more are taken away, one after another.
    let mut free: Vec<usize> = reached.iter().map(|(i, _)| *i).filter(|&i| uses[i] == 0).collect();
    let mut taken = 0;
    while let Some(rule) = free.pop() {
        taken += 1;
        for used in named(bodies[rule]) {
            uses[used] -= 1;
            if uses[used] == 0 {
                free.push(used);
            }
        }
    }
    taken < reached.len()
}

fn reachable<'n>(bodies: &[&'n Node], root: usize) -> Vec<(usize, &'n Node)> {
    let mut known = vec![false; bodies.len()];
    let (mut open, mut found) = (vec![root], Vec::new());
    while let Some(rule) = open.pop() {
        if !std::mem::replace(&mut known[rule], true) {
            found.push((rule, bodies[rule]));
            bodies[rule].rules(&mut open);
        }
    }
    found
}

struct Writer {
    letter: char,
    is_flat: bool,
}

impl Writer {
    fn text(&self, node: &Node) -> String {
        let quoted = |text: String| serde_json::Value::from(text).to_string();
        match node {
            Node::Text(text) if self.is_flat || text.is_empty() => quoted(text.clone()),
            Node::Text(text) => {
                let characters = text.chars().map(|c| quoted(c.to_string()));
                format!("({})", characters.collect::<Vec<_>>().join(" "))
            }
            Node::Class { is_negated, ranges } => {
                let range = |&(from, to): &(char, char)| {
                    format!("\\x{{{:X}}}-\\x{{{:X}}}", u32::from(from), u32::from(to))
                };
                let ranges: String = ranges.iter().map(range).collect();
                format!("/[{}{ranges}]/", if *is_negated { "^" } else { "" })
            }
            Node::Any => "/(?s:.)/".into(),
            Node::Rule(rule) => format!("{}{rule}", self.letter),
            Node::Token(token) => token.clone(),
            Node::All(nodes) if nodes.is_empty() => quoted(String::new()),
            Node::All(nodes) => self.list(nodes, " "),
            Node::OneOf(nodes) => self.list(nodes, " | "),
            Node::Repeated(node, least, most) => {
                let count = match (least, most) {
                    (0, None) => "*".into(),
                    (1, None) => "+".into(),
                    (0, Some(1)) => "?".into(),
                    (least, None) => format!("{{{least},}}"),
                    (least, Some(most)) => format!("{{{least},{most}}}"),
                };
                format!("({}){count}", self.text(node))
            }
        }
    }

    fn list(&self, nodes: &[Node], between: &str) -> String {
        let nodes: Vec<String> = nodes.iter().map(|node| self.text(node)).collect();
        format!("({})", nodes.join(between))
    }
}

struct Rule {
    name: String,
    /// The index after its first mention.
    at: usize,
    body: Option<Node>,
}

struct Parser {
    chars: Vec<char>,
    at: usize,
    rules: Vec<Rule>,
    names: HashMap<String, usize>,
}

/// The line of an index. It is counted only when there is an error: for each name it would take quadratic time.
fn line(chars: &[char], at: usize) -> usize {
    1 + chars[..at.min(chars.len())].iter().filter(|&&c| c == '\n').count()
}

impl Parser {
    fn peek(&self) -> Option<char> {
        self.chars.get(self.at).copied()
    }

    fn take(&mut self, text: &str) -> bool {
        let found = text.chars().enumerate().all(|(i, c)| self.chars.get(self.at + i) == Some(&c));
        self.at += if found { text.chars().count() } else { 0 };
        found
    }

    fn found(&self) -> String {
        self.peek().map_or("the end".into(), |c| format!("{c:?}"))
    }

    /// Blanks and comments.
    fn blanks(&mut self, newlines: bool) {
        while let Some(c) = self.peek() {
            match c {
                ' ' | '\t' => self.at += 1,
                '\r' | '\n' if newlines => self.at += 1,
                '#' => {
                    let rest = &self.chars[self.at..];
                    self.at += rest.iter().position(|&c| c == '\n').unwrap_or(rest.len());
                }
                _ => break,
            }
        }
    }

    fn grammar(&mut self) -> Result<(), String> {
        self.blanks(true);
        while self.peek().is_some() {
            let rule = self.name()?;
            self.blanks(false);
            if !self.take("::=") {
                return Err(format!(
                    "`::=` is needed behind `{}`, not {}",
                    self.rules[rule].name,
                    self.found()
                ));
            }
            self.blanks(true);
            let body = self.choice(0)?;
            if self.peek().is_some_and(|c| c != '\n' && c != '\r') {
                return Err(format!("{} does not belong to a rule", self.found()));
            }
            if self.rules[rule].body.replace(body).is_some() {
                return Err(format!("the rule `{}` is there twice", self.rules[rule].name));
            }
            self.blanks(true);
        }
        Ok(())
    }

    /// Reads a name, and returns its rule.
    fn name(&mut self) -> Result<usize, String> {
        let is_part = |c: &&char| c.is_ascii_alphanumeric() || **c == '-' || **c == '_';
        let name: String = self.chars[self.at..].iter().take_while(is_part).collect();
        if name.is_empty() {
            return Err(format!("a rule's name is needed, not {}", self.found()));
        }
        self.at += name.len();
        let at = self.at;
        Ok(*self.names.entry(name).or_insert_with_key(|name| {
            self.rules.push(Rule { name: name.clone(), at, body: None });
            self.rules.len() - 1
        }))
    }

    fn choice(&mut self, depth: usize) -> Result<Node, String> {
        if depth > DEEPEST {
            return Err(format!("parentheses nest deeper than {DEEPEST}"));
        }
        let mut choices = vec![self.sequence(depth)?];
        while self.take("|") {
            self.blanks(true);
            choices.push(self.sequence(depth)?);
        }
        Ok(if choices.len() == 1 { choices.swap_remove(0) } else { Node::OneOf(choices) })
    }

    fn sequence(&mut self, depth: usize) -> Result<Node, String> {
        let mut nodes: Vec<Node> = Vec::new();
        let mut stacked = 0;
        while let Some(c) = self.peek() {
            stacked = if matches!(c, '*' | '+' | '?' | '{') { stacked + 1 } else { 0 };
            if stacked > MOST_STACKED {
                return Err(format!("more than {MOST_STACKED} repetitions stand behind each other"));
            }
            let node = match c {
                '"' => self.literal()?,
                '[' => self.class()?,
                '.' => {
                    self.at += 1;
                    Node::Any
                }
                '(' => {
                    self.at += 1;
                    self.blanks(true);
                    let inner = self.choice(depth + 1)?;
                    if !self.take(")") {
                        return Err(format!("`)` is needed, not {}", self.found()));
                    }
                    inner
                }
                '<' => self.token()?,
                '!' => return Err("tokens that are excluded by `!` are not supported".into()),
                '*' | '+' | '?' | '{' => {
                    let node = nodes.pop().ok_or_else(|| format!("nothing is before `{c}`"))?;
                    self.repeated(node)?
                }
                c if c.is_ascii_alphanumeric() || c == '-' || c == '_' => Node::Rule(self.name()?),
                _ => break,
            };
            nodes.push(node);
            self.blanks(depth > 0);
        }
        Ok(if nodes.len() == 1 { nodes.swap_remove(0) } else { Node::All(nodes) })
    }

    fn repeated(&mut self, node: Node) -> Result<Node, String> {
        let (least, most) = match self.chars[self.at] {
            '*' => (0, None),
            '+' => (1, None),
            '?' => (0, Some(1)),
            _ => return self.counted(node),
        };
        self.at += 1;
        Ok(Node::Repeated(Box::new(node), least, most))
    }

    fn counted(&mut self, node: Node) -> Result<Node, String> {
        self.at += 1;
        self.blanks(false);
        let least = self.number()?;
        self.blanks(false);
        let mut most = Some(least);
        if self.take(",") {
            self.blanks(false);
            most = if self.peek() == Some('}') { None } else { Some(self.number()?) };
            self.blanks(false);
        }
        if !self.take("}") {
            return Err(format!("`}}` is needed, not {}", self.found()));
        }
        if most.is_some_and(|most| most < least) {
            return Err(format!("at least {least} and fewer at most is impossible"));
        }
        // Lark has no repetition of zero times.
        if most == Some(0) {
            return Ok(Node::All(Vec::new()));
        }
        Ok(Node::Repeated(Box::new(node), least, most))
    }

    fn number(&mut self) -> Result<u32, String> {
        let digits: String = self.chars[self.at..].iter().take_while(|c| c.is_ascii_digit()).collect();
        self.at += digits.len();
        match digits.parse() {
            Ok(number) if number <= MOST_REPETITIONS => Ok(number),
            _ if digits.is_empty() => Err(format!("a number is needed, not {}", self.found())),
            _ => Err(format!("{digits} repetitions, {MOST_REPETITIONS} are the most")),
        }
    }

    fn literal(&mut self) -> Result<Node, String> {
        self.at += 1;
        let mut text = String::new();
        while !self.take("\"") {
            text.push(self.character()?);
        }
        Ok(Node::Text(text))
    }

    fn class(&mut self) -> Result<Node, String> {
        self.at += 1;
        let (is_negated, mut ranges) = (self.take("^"), Vec::new());
        while !self.take("]") {
            let from = self.character()?;
            let is_range = self.peek() == Some('-') && self.chars.get(self.at + 1).is_some_and(|&c| c != ']');
            let to = if is_range && self.take("-") { self.character()? } else { from };
            if to < from {
                return Err(format!("the range {from:?} to {to:?} is empty"));
            }
            ranges.push((from, to));
        }
        match (is_negated, ranges.is_empty()) {
            (true, true) => Ok(Node::Any),
            (false, true) => Err("nothing is between `[` and `]`".into()),
            (_, false) => Ok(Node::Class { is_negated, ranges }),
        }
    }

    /// Reads `<[1000]>` or `<think>`, which llguidance writes in the same way.
    fn token(&mut self) -> Result<Node, String> {
        let rest = &self.chars[self.at..];
        let end = rest.iter().take(200).position(|&c| c == '>' || c == '\n');
        let token: String = end.map(|end| rest[..=end].iter().collect()).unwrap_or_default();
        self.at += token.chars().count();
        match token.ends_with('>') {
            true => Ok(Node::Token(token)),
            false => Err("`>` is needed behind a token's name".into()),
        }
    }

    fn character(&mut self) -> Result<char, String> {
        let c = self.peek().ok_or("the end comes in the middle of a text")?;
        self.at += 1;
        if c != '\\' {
            return Ok(c);
        }
        let escape = self.peek().ok_or("the end comes in the middle of a text")?;
        self.at += 1;
        let digits = match escape {
            'x' => 2,
            'u' => 4,
            'U' => 8,
            't' => return Ok('\t'),
            'r' => return Ok('\r'),
            'n' => return Ok('\n'),
            '\\' | '"' | '[' | ']' => return Ok(escape),
            other => return Err(format!("`\\{other}` is no escape")),
        };
        let code: String = self.chars[self.at..].iter().take(digits).collect();
        self.at += code.chars().count();
        let value = u32::from_str_radix(&code, 16).ok().filter(|_| code.chars().count() == digits);
        value.and_then(char::from_u32).ok_or_else(|| format!("`\\{escape}{code}` is no character"))
    }
}
