//! In place of RocksDB, which takes many minutes to build. limitador compiles its storage on disk
//! even where only the one in Redis is wanted, and the bench never opens it: no value of these
//! types exists.

use std::fmt;
use std::marker::PhantomData;
use std::path::Path;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    TimedOut,
    TryAgain,
}

/// Has no value.
#[derive(Clone, Copy, Debug)]
enum Never {}

#[derive(Clone, Debug)]
pub struct Error(Never);

impl Error {
    pub fn kind(&self) -> ErrorKind {
        match self.0 {}
    }
}

impl fmt::Display for Error {
    fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {}
    }
}

impl std::error::Error for Error {}

pub struct MultiThreaded;

/// Cannot be opened.
pub struct DBWithThreadMode<T>(Never, PhantomData<T>);

pub type DB = DBWithThreadMode<MultiThreaded>;

pub type Entry = Result<(Box<[u8]>, Box<[u8]>), Error>;

impl<T> DBWithThreadMode<T> {
    pub fn open<P: AsRef<Path>>(_: &Options, _: P) -> Result<Self, Error> {
        unimplemented!("this build has no RocksDB")
    }

    pub fn get<K: AsRef<[u8]>>(&self, _: K) -> Result<Option<Vec<u8>>, Error> {
        match self.0 {}
    }

    pub fn merge<K: AsRef<[u8]>, V: AsRef<[u8]>>(&self, _: K, _: V) -> Result<(), Error> {
        match self.0 {}
    }

    pub fn delete<K: AsRef<[u8]>>(&self, _: K) -> Result<(), Error> {
        match self.0 {}
    }

    pub fn prefix_iterator<P: AsRef<[u8]>>(&self, _: P) -> std::iter::Empty<Entry> {
        match self.0 {}
    }

    pub fn iterator(&self, _: IteratorMode) -> std::iter::Empty<Entry> {
        match self.0 {}
    }
}

pub enum IteratorMode {
    Start,
}

pub enum CompactionDecision {
    Keep,
    Remove,
}

pub enum DBCompressionType {
    Bz2,
    None,
}

#[derive(Default)]
pub struct Options;

impl Options {
    pub fn create_if_missing(&mut self, _: bool) {}

    pub fn set_compression_type(&mut self, _: DBCompressionType) {}

    pub fn set_compaction_filter<F>(&mut self, _: &str, _: F)
    where
        F: FnMut(u32, &[u8], &[u8]) -> CompactionDecision + Send + 'static,
    {
    }

    pub fn set_merge_operator_associative<F>(&mut self, _: &str, _: F)
    where
        F: Fn(&[u8], Option<&[u8]>, &MergeOperands) -> Option<Vec<u8>> + Clone + Send + 'static,
    {
    }
}

pub struct MergeOperands(Never);

impl<'a> IntoIterator for &'a MergeOperands {
    type Item = &'a [u8];
    type IntoIter = std::iter::Empty<&'a [u8]>;

    fn into_iter(self) -> Self::IntoIter {
        match self.0 {}
    }
}
