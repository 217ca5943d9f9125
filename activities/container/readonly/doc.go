// Package readonly proves that a command changes nothing in a container: from its text
// ([ParseScript]), which may only call a few programs with literal words, and from the container
// ([Prover]), whose environment must not mislead them and whose programs have to be those of its
// image. What cannot be proven is taken to change something. testdata holds the corpus by which the
// proof of the text is judged: its commands are run, and what they change is compared with the
// verdict.
package readonly
