// Package task is the task file: its format, its checks, and the compiled task that a workflow
// runs. It is pure: it reads what it is given and nothing else, and the same input always gives the
// same result, so workflow code may use it.
//
// # The file
//
// YAML or JSON. docs/task-file.md says how to write one, and docs/task-file-reference.md lists
// every field; this one uses them all:
//
//	name: publish release 2             # required
//	agent: release-bot                  # who carries it out: shown, and searchable
//	timeout: 2h                         # the deadline of the task; when it passes, the task unwinds
//	on_failure: unwind                  # what happens when a step fails: unwind, rollback_step, continue or ask
//	unwind: parallel                    # undo independent branches at the same time; lifo: strictly the last step first
//	keep: 3h                            # how long the task can be rolled back after it has committed
//	pinned: true                        # keep its records for all of that time, whatever the
//	                                    # worker's retention limits say
//	session: {idle: 30m, gone: ask}     # it takes further steps while it runs: see docs/sessions.md
//	vars:                               # values of any kind; the command line may override them
//	  site: /srv/site
//	  workers: 8
//	steps:
//	  - id: config                      # required: a-z, 0-9, _ and -, a letter first, at most 63
//	    name: write the configuration   # a title for people
//	    uses: file.write                # required: the action
//	    with:                           # its parameters, checked against the schema of the action
//	      path: ${{ vars.site }}/app.json
//	      content: '{"workers": ${{ vars.workers }}}'
//	    check:                          # conditions on the result; one kind an item
//	      - json: {at: /workers, equals: 8}
//	        when: staged                # on the new content before it takes its place; live: on the target afterwards
//	      - command: [node, --check, "{path}"]
//	      - exists: /srv/site/index.html
//	  - id: customer
//	    uses: stripe.customer.create
//	    needs: []                       # left out: all steps above; []: none
//	    with: {email: ada@example.com}
//	    retry: {attempts: 5, backoff: 2s, max: 1m}
//	    timeout: 30s                    # of one attempt
//	    again: true                     # in a session: although a step that is done has the same purpose
//	    undo: {within: 3h, attempts: 20, drift: ask}
//	    savepoint: before-customer      # a name for the place just before this step
//	  - id: welcome
//	    uses: container.exec
//	    needs: [customer]
//	    gate: {mode: ask, timeout: 4h, why: the customer reads it}   # or just: ask, auto, none
//	    on: mail-1                      # the host that runs it
//	    on_failure: {unwind_to: before-customer, times: 2}   # or a word, as above
//	    with:
//	      container: mail
//	      argv: [welcome, "${{ steps.customer.outputs.id }}"]
//	      env: {MAIL_TOKEN: "${{ secrets.MAIL_TOKEN }}"}
//	  - id: report
//	    uses: file.write
//	    pivot: true                     # once it is done, nothing up to here is unwound
//	    undo: {criticality: low}        # an undo that cannot be done is accepted and reported; normal: a person is asked
//	    with: {path: /srv/site/report.txt, content: sent}
//
// The types in file.go are the one description of the format: the parser, [Schema] and the
// reference are derived from them.
//
// # Expressions
//
//	${{ vars.NAME }}               in name, with, check, gate and on of a step; filled in by Compile
//	${{ steps.ID.outputs.NAME }}   in with: an output of a step above, which thereby becomes a need
//	${{ secrets.NAME }}            in with: a secret that the worker's config allows; only the worker ever has its value
//	${{ 'text' }}                  the text itself, with a doubled quote for a quote: for a $ before another expression
//	$${{                           the text "${{"
//
// A text that is one expression takes the type of the value: a number stays a number. Inside a
// longer text a value is written as it is, or as JSON where it is not text. What an expression puts
// in is data: it is never searched for expressions again, so an output that holds "${{ secrets.NAME
// }}" never becomes a secret.
//
// # Order
//
// A step without needs follows all above it. Beyond its needs, a step follows the steps whose
// outputs it refers to, and those above it in the same place that touch the same resource, or a
// file above or below it in a tree. A resource that cannot be named yet may be any in its place.
// [Step.Needs] holds the result, without what follows from the rest.
//
// # Problems
//
// [Parse] and [Compile] return all [Problems] that they find, each with file, line and column, the
// field, the value and the way out:
//
//	task.yml:8:7: steps.configure.with.paht: unknown parameter; did you mean path?
//
// The constants of this package limit sizes. Parameters stand in the workflow's history: at most
// MaxInline bytes a step; what is larger or private goes into a file that is named with source:.
// Anchors, aliases, merge keys and tags of YAML are refused: what you read in a file is all there
// is.
//
// # Sessions
//
// A task with session: takes further steps while it runs, which come as an [Addition]: a list of
// steps as in a task file, checked with what the session's document says of all steps. They may
// need the steps before them and refer to their outputs.
//
// # From file to workflow
//
// The starter parses the file, compiles it once to report problems early, and starts a workflow
// with [Document.JSON]. The workflow's first activity parses and compiles it again, on a worker
// that knows the actions and its own journals. The workflow then runs the [Compiled] steps, and
// resolves each with [Step.Resolve] when its needs are done.
package task
