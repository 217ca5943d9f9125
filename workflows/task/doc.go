// Package task is the task file: what people and agents write, how it is checked, and what becomes of it. It is pure: it
// reads what it is given and nothing else, and the same input always gives the same result, so workflow code may use it.
//
// # The file
//
// YAML or JSON, in a shape that is known from continuous integration:
//
//	name: publish release 2             # required
//	agent: release-bot                  # who does it: shown, and searchable
//	timeout: 2h                         # the task's deadline; when it passes, the task unwinds
//	on_failure: unwind                  # what a step that fails leads to: unwind, rollback_step or continue
//	unwind: parallel                    # independent branches are undone at once; lifo: strictly the last step first
//	keep: 3h                            # how long it can be rolled back after it is done; 1h where it is left out
//	pinned: true                        # and what that needs stays for all of that time, however much newer records take
//	vars:                               # values of any kind; a command line may override them
//	  site: /srv/site
//	  workers: 8
//	steps:
//	  - id: config                      # required: a-z, 0-9, _ and -, a letter first, at most 63
//	    name: write the configuration   # a title for people
//	    uses: file.write                # required: the action
//	    with:                           # its parameters, checked against the action's schema
//	      path: ${{ vars.site }}/app.json
//	      content: '{"workers": ${{ vars.workers }}}'
//	    check:                          # what must hold of the result; one kind an item
//	      - json: {at: /workers, equals: 8}     # file: defaults to the step's target
//	        when: staged                        # before it takes its place; or live: afterwards
//	      - command: [node, --check, "{path}"]  # a program and its arguments as a list, no shell between
//	      - exists: /srv/site/index.html        # or {path: ...}; {} is the step's own target
//	  - id: customer
//	    uses: stripe.customer.create
//	    needs: []                       # left out: all steps above; []: none
//	    with: {email: ada@example.com}
//	    retry: {attempts: 5, backoff: 2s, max: 1m}
//	    timeout: 30s                    # of one attempt
//	    undo: {within: 3h, attempts: 20, drift: ask}  # how long and how often it is tried; on drift: ask, force or skip
//	    savepoint: before-customer      # a name for the place just before this step
//	  - id: welcome
//	    uses: http.request
//	    needs: [customer]
//	    gate: {mode: ask, timeout: 4h, why: the customer reads it}   # or just: ask, auto, none
//	    on: mail-1                      # the host that it runs on
//	    on_failure: {unwind_to: before-customer, times: 2}   # or a word, as above
//	    with:
//	      url: https://mail.example.com/welcome/${{ steps.customer.outputs.id }}
//	      token: ${{ secrets.MAIL_TOKEN }}
//	  - id: report
//	    uses: file.write
//	    pivot: true                     # once it is done, nothing up to here is unwound
//	    undo: {criticality: low}        # where its undo fails for good it is accepted as it is; normal: a person is asked
//	    with: {path: /srv/site/report.txt, content: sent}
//
// Times are written as 30s, 5m, 2h, 3d or 1h30m. No field is known but those above.
//
// # Expressions
//
//	${{ vars.NAME }}               anywhere in name, with, check, gate and on of a step; filled in by Compile
//	${{ steps.ID.outputs.NAME }}   in with: an output of a step above, which thereby is a need
//	${{ secrets.NAME }}            in with: a secret that the worker's config allows; only the worker ever has its value
//	${{ 'text' }}                  the text itself, with a doubled quote for a quote: for a $ before another expression
//	$${{                           the text "${{"
//
// A text that is one expression takes the value's own type: a number stays a number. As a part of a text a value is
// written as it is, or as JSON where it is no text. What an expression puts in is data: it is never looked through for
// expressions again, and an output that holds "${{ secrets.NAME }}" never becomes a secret.
//
// # Order
//
// A step without needs follows all above it. Beyond what needs says, a step follows those whose outputs it refers to, and
// those above it in the same place that touch the same resource, or one above or below it in a tree of files. A resource
// that cannot be named yet may be any in its place. [Step.Needs] holds the result, without what follows from the rest.
//
// # Failure
//
// on_failure says what happens when a step has failed, its retries used up; the step's own word goes before the task's:
//
//	unwind           everything is undone, back to the last pivot that is done: the default
//	rollback_step    the step is undone, what needs it is not run, and independent work goes on
//	continue         it is noted, what the step did stays on the ledger (past a pivot too), and what needs it runs
//	{unwind_to: S}   everything from savepoint S on is undone and done again, at most times: N (1 where it is left out);
//	                 then the task unwinds
//
// A savepoint stands on the step itself or on one above it. None can be gone back to past a pivot. A step that refers to
// an output of one that has failed fails too. A step that a person rejects at its gate has failed, and is not tried again
// by unwind_to. A deadline that passes, and a cancellation, unwind the task whatever the file says.
//
// A task that is done can be rolled back for the time of keep, which cannot be longer than the server keeps closed runs.
//
// # Gates
//
// An action that is risky or irreversible is asked for without a word in the file; gate: none must be written out, and
// stands in the report. gate: auto asks where the change turns out to be of medium or high risk. A gate that nobody
// answers in time counts as rejected: after a day where the mode is auto, else after a year, or after its timeout.
//
// # What is refused
//
// [Parse] and [Compile] return all [Problems] that they find, each with file, line and column, the field, the value and
// the way out:
//
//	task.yml:8:7: steps[0].with.paht: unknown parameter; did you mean path?
//
// Sizes are limited by the constants of this package. Parameters stand in the workflow's history: at most MaxInline bytes
// a step; what is larger or private goes into a file that is named with source:. YAML's anchors, aliases, merge keys and
// tags of its own are refused: a file is what it looks like.
//
// # The way of a task
//
// The starter parses the file, compiles it once to tell problems early, and starts a workflow with [Document.JSON]. The
// workflow's first activity parses and compiles it again, on a worker that knows the actions and its own journals. The
// workflow then runs the [Compiled] steps, and resolves each with [Step.Resolve] when its needs are done.
//
// [Schema] is the JSON Schema of the file, for editors; schema.json holds it for any action.
package task
