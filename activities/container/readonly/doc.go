// Package readonly proves from its text that a command changes nothing. A parser has to know every construct in it, and a
// table every program with its arguments; what it does not know is taken to change something. testdata holds the corpus by
// which the proof is judged: its commands are run, and what they change is compared with the verdict.
package readonly
