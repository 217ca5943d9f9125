// Package readonly proves that a command changes nothing in a container: from its text ([ParseScript]), where a parser has to know
// every construct and a table every program with its arguments, and from the container ([Prover]), where the programs have to be
// those of its image. What cannot be proven is taken to change something. testdata holds the corpus by which the proof of the text
// is judged: its commands are run, and what they change is compared with the verdict.
package readonly
