// Package policy judges changes by the rules of a worker: a file of conditions in CEL, each with what
// becomes of a change that meets it, and by the policies of other engines that the file names. See
// docs/policies.md.
//
//	groups:
//	  dba: [ann, bob]
//	rules:
//	  - name: big-deletes
//	    when: change.counts.exists(c, c.removed > 1000)
//	    then: ask
//	    from: [{group: dba}]
//
// A rule that cannot be evaluated asks, and so does an engine that gives no verdict. Of the rules that
// match, the strictest counts.
package policy
