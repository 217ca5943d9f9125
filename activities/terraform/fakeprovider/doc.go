// Command fakeprovider is a Terraform provider for tests. Each fake_thing is a file DIR/ID.json
// with a random id, so an object that Terraform has lost track of is seen: nothing hides it. Making
// one can be slow, and can fail before or after it has acted.
package main
