// Package page serves people what waits for them, and the tasks of a namespace, as pages of HTML
// that a browser shows without a script: a script of a few lines only keeps what is shown up to
// date. What a page shows is what the commands of the starter show, and a decision carries the
// digest of what was shown, so a page that is out of date decides nothing.
//
// A person is whoever bears a token, and may do what its role allows. Without tokens the page is
// for whoever reaches the loopback address. Either way a name is a claim to the task: whoever has
// access to the namespace can decide under any.
package page
