// Package signers verifies who has decided about a step: by SSH signatures of the keys in a file of
// OpenSSH's allowed signers, as ssh-keygen -Y verify does. See docs/policies.md.
//
//	ann@example.com valid-before="20270101" ssh-ed25519 AAAAC3Nz...
//
// Each key belongs to one person, so that one cannot approve as two.
package signers
