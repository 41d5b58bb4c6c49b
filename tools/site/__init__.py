"""The pages as a site: what ``make docs`` builds with Sphinx, MyST and Furo."""
