/// What a user may do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rights {
    /// Read records.
    pub read: bool,
    /// Change records.
    pub write: bool,
    /// Look at the node and its other clients, and change settings.
    pub administer: bool,
    /// The tables that the user reaches; `None` for all.
    pub tables: Option<Vec<String>>,
}

impl Rights {
    /// To do everything.
    pub fn all() -> Self {
        Self { read: true, write: true, administer: true, tables: None }
    }

    /// From the words `read`, `write` and `admin`, for some tables or all.
    ///
    /// # Errors
    /// A word that is none of these.
    pub fn from_words<'a>(words: &'a [String], tables: Option<&[String]>) -> Result<Self, &'a str> {
        let mut rights = Self { read: false, write: false, administer: false, tables: tables.map(<[String]>::to_vec) };
        for word in words {
            match word.as_str() {
                "read" => rights.read = true,
                "write" => rights.write = true,
                "admin" => rights.administer = true,
                other => return Err(other),
            }
        }
        Ok(rights)
    }

    /// Whether they are [`all`](Self::all) that there are.
    pub fn are_all(&self) -> bool {
        *self == Self::all()
    }

    /// Whether they hold for the table of that name.
    pub fn include_table(&self, name: &str) -> bool {
        self.tables.as_ref().is_none_or(|tables| tables.iter().any(|table| table == name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rights_are_said_in_words() {
        let read = |words: &[&str], tables: Option<&[String]>| {
            let words: Vec<String> = words.iter().map(ToString::to_string).collect();
            Rights::from_words(&words, tables).map_err(str::to_string)
        };
        let reader = read(&["read"], Some(&["one".into()])).unwrap();
        assert!(reader.read && !reader.write && !reader.administer && !reader.are_all());
        assert!(reader.include_table("one") && !reader.include_table("two"));
        let all = read(&["admin", "write", "read"], None).unwrap();
        assert!(all.are_all() && all.include_table("two"));
        assert!(!read(&["admin", "write", "read"], Some(&[])).unwrap().are_all());
        assert_eq!(read(&["read", "Write"], None), Err("Write".into()));
    }
}
