//! What comes of documents, seen from outside: the corpus, the rules of each profile, the field reports, the laws.

#[cfg(test)]
mod corpus;
#[cfg(test)]
mod field_reports;
#[cfg(test)]
mod for_all;
#[cfg(test)]
mod imports;
#[cfg(test)]
mod laws;
#[cfg(test)]
mod machine;
#[cfg(test)]
mod options_page;
#[cfg(test)]
mod other_shapes;
#[cfg(test)]
mod page;
#[cfg(test)]
mod permissions;
#[cfg(test)]
mod rules;
#[cfg(test)]
mod schema;
